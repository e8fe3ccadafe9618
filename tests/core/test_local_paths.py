from __future__ import annotations

import pytest

from ptjob_provider.core.local.volumes import Binding, PathMap, normal
from rows import each_row

MAP = PathMap(
    [
        Binding(container_path="/data", host_path="/host/claim"),
        Binding(container_path="/data/deep/", host_path="/host/other"),
        Binding(container_path="/mnt/a.b", host_path="/host/dots"),
    ]
)


@each_row(
    ("text", "mapped"),
    [
        ("/data", "/host/claim"),
        ("/data/", "/host/claim/"),
        ("/data/x.pt", "/host/claim/x.pt"),
        ("/data/deep", "/host/other"),
        ("/data/deep/x", "/host/other/x"),
        ("/data/deeper", "/host/claim/deeper"),
        ("/data2", "/data2"),
        ("/data-old/x", "/data-old/x"),
        ("/mnt/aXb", "/mnt/aXb"),
        ("/mnt/a.b/c", "/host/dots/c"),
        ("/other/data", "/other/data"),
        ("--save=/data/x", "--save=/host/claim/x"),
        ("/data/a:/data/deep/b:/usr/lib", "/host/claim/a:/host/other/b:/usr/lib"),
        ("a,/data,b", "a,/host/claim,b"),
        (
            "python /data/t.py --out '/data/o' && ls \"/data\"",
            "python /host/claim/t.py --out '/host/claim/o' && ls \"/host/claim\"",
        ),
        ("cd /data;ls", "cd /host/claim;ls"),
        ('{"path": "/data/x"}', '{"path": "/host/claim/x"}'),
        ("$(cat /data/x)", "$(cat /host/claim/x)"),
        ("s3://bucket/data/x", "s3://bucket/data/x"),
        ("https://host:80/data", "https://host:80/data"),
        ("no path", "no path"),
        ("", ""),
    ],
)
def test_every_container_path_in_a_text_is_replaced(text: str, mapped: str) -> None:
    """The longest one wins, and only whole components of a path count."""
    assert MAP.text(text) == mapped


def test_what_was_replaced_is_not_replaced_again() -> None:
    """A path of this machine may begin like one of the container."""
    both = PathMap(
        [Binding(container_path="/data", host_path="/mnt/data"), Binding(container_path="/mnt", host_path="/x")]
    )

    assert both.text("/data /mnt/a") == "/mnt/data /x/a"


def test_without_bindings_nothing_is_replaced() -> None:
    """A container that mounts nothing keeps its texts."""
    assert PathMap([]).text("/data") == "/data"


def test_a_later_binding_of_a_path_hides_an_earlier_one() -> None:
    """As a mount hides what the image has there."""
    both = PathMap([Binding(container_path="/a", host_path="/1"), Binding(container_path="/a/", host_path="/2")])

    assert both.text("/a") == "/2"


@pytest.mark.parametrize(
    ("path", "host"),
    [("/data", "/host/claim"), ("/data/run/1", "/host/claim/run/1"), ("/data/deep/x", "/host/other/x"), ("/etc", None)],
)
def test_one_path_is_looked_up_whole(path: str, host: str | None) -> None:
    """A path on no binding has no place here."""
    assert MAP.path(path) == host


@pytest.mark.parametrize(("path", "clean"), [("/a//b/", "/a/b"), ("//a", "/a"), ("a", "/a"), ("/", "/")])
def test_a_path_has_one_spelling(path: str, clean: str) -> None:
    """Slashes too many make no difference."""
    assert normal(path) == clean
