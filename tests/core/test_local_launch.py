from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.kinds import PYTORCHJOB
from ptjob_provider.core.local import pod
from ptjob_provider.core.local.config import Setup
from ptjob_provider.core.local.image import ImageFacts
from ptjob_provider.core.local.launch import Launch, PathMap, PodPlan, launch
from ptjob_provider.core.local.supervisor import LONGEST_GRACE
from rows import each_row

if TYPE_CHECKING:
    import pytest

IMAGE = ImageFacts(
    python="/py",
    entrypoint=["python", "/app/train.py"],
    working_dir="/app",
    env={"CONF": "/app/conf.yaml"},
    files={"/app/train.py": "/ctx/train.py"},
    directories=["/app"],
)
UID = "00000000-0000-0000-0000-000000000001"


def plan_of(spec: dict[str, Any], *, python: str = "/default-py") -> PodPlan:
    """Return the plan of the master's pod with this specification."""
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "j", "namespace": "ns", "uid": UID, "creationTimestamp": "2026-11-20T10:00:00Z"},
        "spec": {"pytorchReplicaSpecs": {"Master": {"template": {"spec": {"containers": [], **spec}}}}},
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
    return PodPlan(job=job, replica=replica, port=1, setup=setup, directory=Path("/pod"))


def planned(container: dict[str, Any], *, is_init: bool = False, python: str = "/default-py") -> Launch:
    """Return the launch of a container that may mount the claim `c`."""
    plan = plan_of({"volumes": [{"name": "c", "persistentVolumeClaim": {"claimName": "c"}}]}, python=python)
    return launch(plan, {"name": "pytorch", "image": "other", **container}, is_init=is_init)


def test_a_mount_hides_what_the_image_has_there() -> None:
    found = planned({"image": "known", "volumeMounts": [{"name": "c", "mountPath": "/app"}]})

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


class StandInContainer:
    """Container that notes its signals."""

    pid = 1
    has_ended = False

    def __init__(self) -> None:
        self.signals: list[str] = []

    def terminate(self) -> None:
        self.signals.append("SIGTERM")

    def kill(self) -> None:
        self.signals.append("SIGKILL")


@each_row(("grace", "seconds"), [(None, 3), (1, 1), (100, 3)])
def test_a_stopped_pod_is_killed_after_its_grace_period_or_three_seconds(
    monkeypatch: pytest.MonkeyPatch, grace: int | None, seconds: int
) -> None:
    now, container = [0.0], StandInContainer()
    monkeypatch.setattr(pod, "time", SimpleNamespace(monotonic=lambda: now[0]))
    stopped = pod.LocalPod(plan_of({"terminationGracePeriodSeconds": grace}), log=lambda *_: Path("/log"))
    stopped._main = [container]  # type: ignore[list-item]

    stopped.stop(LONGEST_GRACE)
    now[0] = seconds - 0.01
    stopped.advance()
    assert container.signals == ["SIGTERM"]
    now[0] = seconds
    stopped.advance()
    assert container.signals == ["SIGTERM", "SIGKILL"]
