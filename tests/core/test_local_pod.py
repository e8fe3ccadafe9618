from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from ptjob_provider.core.local import pod
from ptjob_provider.core.local.launch import Place
from ptjob_provider.core.local.operator import defaulted
from ptjob_provider.core.local.store import JobFiles
from ptjob_provider.core.local.supervisor import LONGEST_GRACE
from rows import each_row

if TYPE_CHECKING:
    import pytest


def test_pauses_double_up_to_a_limit() -> None:
    """The first restart is immediate, as on a node."""
    assert [pod.delay(count, 10.0) for count in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]
    assert pod.delay(10_000, 10.0) == 300


@each_row(
    ("program", "error", "words"),
    [
        ("/prog", OSError(errno.EACCES, "Permission denied"), 'exec: "/prog": permission denied'),
        ("prog", OSError("odd"), 'exec: "prog": odd'),
        ("prog", RuntimeError("mount failed"), 'exec: "prog": mount failed'),
    ],
)
def test_a_failed_start_is_reported_in_the_runtimes_words(program: str, error: Exception, words: str) -> None:
    assert pod.start_error(program, error) == words


class StandInContainer:
    """Running container that notes its signals."""

    pid = 1

    def __init__(self) -> None:
        self.signals: list[str] = []

    def terminate(self) -> None:
        self.signals.append("SIGTERM")

    def kill(self) -> None:
        self.signals.append("SIGKILL")


@each_row(("grace", "seconds"), [(None, 3), (1, 1), (100, 3)])
def test_a_removed_pod_is_killed_after_its_grace_period_or_three_seconds(
    monkeypatch: pytest.MonkeyPatch, grace: int | None, seconds: int
) -> None:
    template = {"spec": {"terminationGracePeriodSeconds": grace}}
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "digits", "namespace": "team", "uid": "u-1"},
        "spec": {"pytorchReplicaSpecs": {"Master": {"template": template}}},
    }
    now, container = [0.0], StandInContainer()
    monkeypatch.setattr(pod, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(pod.Pod, "containers", [container])
    place, files = Place(role="Master", index=0, port=1), JobFiles(Path("/job"))
    removed = pod.Pod(defaulted(job), place, setup=cast("Any", None), files=files, incarnation=1)

    removed.remove(LONGEST_GRACE)
    now[0] = seconds - 0.01
    removed.advance()
    before = [*container.signals]
    now[0] = seconds
    removed.advance()

    assert before == ["SIGTERM"]
    assert container.signals == ["SIGTERM", "SIGKILL"]
