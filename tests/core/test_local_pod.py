from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from ptjob_provider.core.kinds import PYTORCHJOB
from ptjob_provider.core.local import pod
from ptjob_provider.core.local.config import Setup
from ptjob_provider.core.local.launch import PodPlan
from ptjob_provider.core.local.store import JobFiles
from ptjob_provider.core.local.supervisor import LONGEST_GRACE
from rows import each_row

if TYPE_CHECKING:
    import pytest

UID = "00000000-0000-0000-0000-000000000001"


class StandInContainer:
    """Container that notes its signals."""

    has_ended = False
    exit_code = None

    def __init__(self, pid: int | None = 1) -> None:
        self.pid = pid
        self.signals: list[str] = []

    def terminate(self) -> None:
        self.signals.append("SIGTERM")

    def kill(self) -> None:
        self.signals.append("SIGKILL")

    def start(self) -> None:
        self.pid = 1

    def end(self, code: int) -> None:
        self.pid, self.has_ended, self.exit_code = None, True, code


def pod_of(*, init: list[StandInContainer], main: list[StandInContainer], grace: int | None = None) -> pod.LocalPod:
    """Return a placed pod with these containers."""
    template = {"spec": {"containers": [], "terminationGracePeriodSeconds": grace}}
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "digits", "namespace": "team", "uid": UID, "creationTimestamp": "2026-11-20T10:00:00Z"},
        "spec": {"pytorchReplicaSpecs": {"Master": {"template": template}}},
    }
    setup = Setup(
        claims="/claims",
        devices="/gpus.lock",
        environment={},
        python="/py",
        images={},
        stores={"secrets": {}, "config_maps": {}},
    )
    (replica,) = PYTORCHJOB.replicas(job)
    made = pod.LocalPod(
        PodPlan(job=job, replica=replica, port=1, setup=setup, directory=Path("/pod")), log=JobFiles(Path("/job")).log
    )
    made._init, made._main = init, main  # type: ignore[assignment]
    return made


@each_row(("grace", "seconds"), [(None, 3), (1, 1), (100, 3)])
def test_a_stopped_pod_is_killed_after_its_grace_period_or_three_seconds(
    monkeypatch: pytest.MonkeyPatch, grace: int | None, seconds: int
) -> None:
    now, container = [0.0], StandInContainer()
    monkeypatch.setattr(pod, "time", SimpleNamespace(monotonic=lambda: now[0]))
    stopped = pod_of(init=[], main=[container], grace=grace)

    stopped.stop(LONGEST_GRACE)
    now[0] = seconds - 0.01
    stopped.advance()
    before = [*container.signals]
    now[0] = seconds
    stopped.advance()

    assert before == ["SIGTERM"]
    assert container.signals == ["SIGTERM", "SIGKILL"]
