from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ptjob_provider.core.errors import InvalidSpec, UnsupportedByBackend
from ptjob_provider.core.local.admission import check_pod, merged, referenced
from ptjob_provider.core.local.launch import Stores

if TYPE_CHECKING:
    from pathlib import Path

STORES = Stores(secrets={"s": {"k": "v", "l": "w"}, "t": {"k": "x"}}, config_maps={"m": {"k": "v"}})


def pod(container: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {"containers": [{"name": "pytorch", "image": "i", **(container or {})}], **spec}


def claim(name: str) -> list[dict[str, Any]]:
    return [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]


def mount(path: str = "/m", **fields: Any) -> dict[str, Any]:
    return {"volumeMounts": [{"name": "v", "mountPath": path, **fields}]}


@pytest.mark.parametrize("name", ["../c", "a/b", "", ".", "A", "a..b", "x" * 254])
def test_a_claim_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    """Its name is a directory's name."""
    with pytest.raises(InvalidSpec, match=r"volumes\[v\]"):
        check_pod("p", pod(mount(), volumes=claim(name)), claims=tmp_path)


@pytest.mark.parametrize("name", ["c", "data-1", "a.b", "x" * 253])
def test_a_claims_own_name_is_allowed(tmp_path: Path, name: str) -> None:
    """As Kubernetes allows it."""
    check_pod("p", pod(mount(subPath="a/b"), volumes=claim(name)), claims=tmp_path)


@pytest.mark.parametrize("sub_path", ["..", "a/../../b", "/etc"])
def test_a_sub_path_that_leads_out_is_refused(tmp_path: Path, sub_path: str) -> None:
    """By its words."""
    with pytest.raises(InvalidSpec, match="subPath"):
        check_pod("p", pod(mount(subPath=sub_path), volumes=claim("c")), claims=tmp_path)


def test_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    """One that stays inside, and a claim that is itself a link, are not."""
    (tmp_path / "real").mkdir()
    (tmp_path / "c").symlink_to(tmp_path / "real")
    (tmp_path / "real/out").symlink_to("/etc")
    (tmp_path / "real/sub").mkdir()
    (tmp_path / "real/in").symlink_to("sub")

    check_pod("p", pod(mount(subPath="in"), volumes=claim("c")), claims=tmp_path)
    with pytest.raises(InvalidSpec, match="link"):
        check_pod("p", pod(mount(subPath="out/x"), volumes=claim("c")), claims=tmp_path)


def test_the_whole_file_system_cannot_be_mounted_over(tmp_path: Path) -> None:
    """A path below it can."""
    with pytest.raises(InvalidSpec, match="below /"):
        check_pod("p", pod(mount("/"), volumes=claim("c")), claims=tmp_path)


@pytest.mark.parametrize(
    "bad", [pod(volumes=[{"name": "../v", "emptyDir": {}}]), pod({"name": "a/b"}), pod(initContainers=[{"name": "I"}])]
)
def test_names_that_cannot_be_directories_are_refused(tmp_path: Path, bad: dict[str, Any]) -> None:
    """Volumes and containers have directories of their names."""
    with pytest.raises(InvalidSpec, match="name"):
        check_pod("p", bad, claims=tmp_path)


@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("metadata.name", True),
        ("metadata.labels['a/b']", True),
        ("status.podIP", True),
        ("spec.nodeName", False),
        ("metadata.creationTimestamp", False),
    ],
)
def test_only_fields_that_a_pod_has_here_can_be_told(tmp_path: Path, path: str, known: bool) -> None:  # noqa: FBT001
    """Others are refused."""
    spec = pod({"env": [{"name": "A", "value": "x"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": path}}}]})

    if known:
        check_pod("p", spec, claims=tmp_path)
        return
    with pytest.raises(UnsupportedByBackend, match=r"p\.containers\[0\]\.env\[1\]\.valueFrom\.fieldRef"):
        check_pod("p", spec, claims=tmp_path)


def test_only_what_a_pod_refers_to_is_found() -> None:
    """In variables, in whole, and as files, of all its containers."""
    spec = pod(
        {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}, {"name": "B", "value": "x"}]},
        initContainers=[{"name": "i", "envFrom": [{"configMapRef": {"name": "m"}}]}],
        volumes=[{"name": "v", "secret": {"secretName": "t"}}, {"name": "e", "emptyDir": {}}],
    )

    assert referenced("p", spec, STORES) == Stores(
        secrets={"s": {"k": "v"}, "t": {"k": "x"}}, config_maps={"m": {"k": "v"}}
    )


def test_a_reference_that_leads_nowhere_is_named() -> None:
    """By its path."""
    spec = pod(initContainers=[{"name": "i", "envFrom": [{}, {"secretRef": {"name": "no"}}]}])

    with pytest.raises(InvalidSpec, match=r"p\.initContainers\[0\]\.envFrom\[1\]\.secretRef"):
        referenced("p", spec, STORES)


def test_two_pods_references_are_joined() -> None:
    """Key by key."""
    left = Stores(secrets={"s": {"k": "v"}}, config_maps={})
    right = Stores(secrets={"s": {"l": "w"}}, config_maps={"m": {"k": "v"}})

    assert merged(left, right) == Stores(secrets={"s": {"k": "v", "l": "w"}}, config_maps={"m": {"k": "v"}})
