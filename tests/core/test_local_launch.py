from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.kinds import PYTORCHJOB
from ptjob_provider.core.local.config import Setup
from ptjob_provider.core.local.image import ImageFacts
from ptjob_provider.core.local.launch import (
    Launch,
    PathMap,
    PodPlan,
    launch,
    resolve,
    values_of,
)
from rows import each_row

STORES = {"secrets": {"s": {"k": "hidden", "bad name": "x"}}, "config_maps": {"m": {"mode": "fast", "9": "n"}}}


@each_row(
    ("container", "words"),
    [
        (
            {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "x"}}}]},
            "env.A..*secretKeyRef.*'s/x'",
        ),
        ({"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "x", "key": "k"}}}]}, "configMapKeyRef"),
        ({"envFrom": [{"secretRef": {"name": "none"}}]}, r"envFrom\[0\].secretRef.*'none'.*configured here.*: s"),
    ],
)
def test_an_absent_reference_is_refused_by_its_field(container: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSpec, match=words) as caught:
        resolve(container, stores=STORES, fields={})

    assert "hidden" not in str(caught.value)


def test_a_file_of_a_key_that_is_absent_is_refused() -> None:
    items = [{"key": "gone", "path": "p"}]

    with pytest.raises(InvalidSpec, match="'s/gone'"):
        values_of({"secret": {"secretName": "s", "items": items}}, STORES, "volumes[0]")

    assert values_of({"secret": {"secretName": "s", "items": items, "optional": True}}, STORES, "v")


IMAGE = ImageFacts(
    python="/py",
    entrypoint=["python", "/app/train.py"],
    working_dir="/app",
    env={"CONF": "/app/conf.yaml", "A": "image"},
    files={"/app/train.py": "/ctx/train.py"},
    directories=["/app"],
)
UID = "00000000-0000-0000-0000-000000000001"


def planned(
    container: dict[str, Any],
    mounts: dict[str, str] | None = None,
    *,
    is_init: bool = False,
    devices: tuple[str, ...] = (),
    python: str = "/default-py",
) -> Launch:
    """Return the launch of a container of a job's master; `mounts` has claims by the paths of their mounts."""
    claims = mounts or {}
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims.values()]
    template = {"metadata": {"labels": {"team": "a"}}, "spec": {"containers": [], "volumes": volumes}}
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "j", "namespace": "ns", "uid": UID, "creationTimestamp": "2026-11-20T10:00:00Z"},
        "spec": {"pytorchReplicaSpecs": {"Master": {"template": template}}},
    }
    setup = Setup(
        claims="/claims",
        devices="/gpus.lock",
        environment={"PATH": "/bin", "HOME": "/home/me"},
        python=python,
        images={"known": IMAGE},
        stores={"secrets": {}, "config_maps": {}},
    )
    (replica,) = PYTORCHJOB.replicas(job)
    pod = PodPlan(job=job, replica=replica, port=1, setup=setup, directory=Path("/pod"), devices=devices)
    mounted = {"volumeMounts": [{"name": name, "mountPath": path} for path, name in claims.items()]}
    return launch(pod, {"name": "pytorch", "image": "other", **mounted, **container}, is_init=is_init)


def test_a_mount_hides_what_the_image_has_there() -> None:
    found = planned({"image": "known"}, {"/app": "c"})

    assert found.working_dir == "/claims/c"
    assert found.env["CONF"] == "/claims/c/conf.yaml"


def test_without_an_image_the_working_directory_is_the_pods() -> None:
    """It is never a directory of this machine."""
    assert planned({"command": ["x"]}).working_dir == "/pod/root"
    assert planned({"command": ["x"], "workingDir": "/work"}).working_dir == "/pod/root/work"
    assert planned({"command": ["python"]}).argv == ["/default-py"]


@each_row(
    ("python", "path"),
    [
        ("/venv/bin/python", "/pod/bin/pytorch:/venv/bin:/opt"),
        ("python3.12", "/pod/bin/pytorch:/opt"),
    ],
)
def test_a_path_of_the_containers_own_stays_behind_the_interpreters(python: str, path: str) -> None:
    """Python, and what is installed beside it, is found even if the container sets `PATH`."""
    container = {"command": ["x"], "env": [{"name": "PATH", "value": "/opt"}]}

    assert planned(container, python=python).env["PATH"] == path


@each_row(("name", "value"), [("KUBERNETES_PORT", "tcp://10.0.0.1:443"), ("CUDA_VISIBLE_DEVICES", "2,3")])
def test_a_container_may_set_a_variable_that_is_not_inherited(name: str, value: str) -> None:
    """Whoever runs several jobs on the GPUs of one machine deals them out."""
    assert planned({"command": ["x"]}).env[name] == ""
    assert planned({"command": ["x"], "env": [{"name": name, "value": value}]}).env[name] == value


def test_nothing_is_injected_into_an_init_container() -> None:
    """The operator does not do it either."""
    assert "RANK" not in planned({"command": ["x"]}, is_init=True).env


MAP = PathMap({"/data": "/host/claim", "/data/deep": "/host/other", "/mnt/a.b": "/host/dots"})


@each_row(
    ("text", "mapped"),
    [
        ("/data", "/host/claim"),
        ("/data/x.pt", "/host/claim/x.pt"),
        ("/data/deep", "/host/other"),
        ("/data2", "/data2"),
        ("/mnt/aXb", "/mnt/aXb"),
        ("/mnt/a.b/c", "/host/dots/c"),
        ("--save=/data/x", "--save=/host/claim/x"),
        ("/data/a:/data/deep/b:/usr/lib", "/host/claim/a:/host/other/b:/usr/lib"),
        (
            "python /data/t.py --out '/data/o' && ls \"/data\"",
            "python /host/claim/t.py --out '/host/claim/o' && ls \"/host/claim\"",
        ),
        ('{"path": "/data/x"}', '{"path": "/host/claim/x"}'),
        ("s3://bucket/data/x", "s3://bucket/data/x"),
    ],
)
def test_every_container_path_in_a_text_is_replaced(text: str, mapped: str) -> None:
    """The longest path wins, and only whole path components match."""
    assert MAP.text(text) == mapped


def test_a_replaced_path_is_not_replaced_again() -> None:
    """A path of this machine may start like one of the container; without mounts nothing changes."""
    assert PathMap({"/data": "/mnt/data", "/mnt": "/x"}).text("/data /mnt/a") == "/mnt/data /x/a"
    assert PathMap({}).text("/data") == "/data"


@each_row(
    ("path", "host"),
    [("/data", "/host/claim"), ("/data/run/1", "/host/claim/run/1"), ("/data/deep/x", "/host/other/x"), ("/etc", None)],
)
def test_a_path_is_replaced_only_as_a_whole(path: str, host: str | None) -> None:
    assert MAP.path(path) == host
