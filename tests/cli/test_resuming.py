"""What `ptjob resume` says of a job that a queue may hold back. The back-end is a script."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from fakes import ScriptedBackend
from ptjob_provider.cli.commands import suspend
from ptjob_provider.core.kinds.ours import QUEUE_LABEL

if TYPE_CHECKING:
    from ptjob_provider.cli.place import Place

WAITS = "team/digits goes on when its queue vision has room, which Kueue decides: ptjob get digits"


@pytest.mark.parametrize(
    ("backend", "labels", "said"),
    [
        ("kubernetes", {QUEUE_LABEL: "vision"}, WAITS),
        ("kubernetes", {}, "team/digits goes on"),
        ("local", {QUEUE_LABEL: "vision"}, "team/digits goes on"),  # there are no queues
    ],
)
def test_whether_a_resumed_job_goes_on_is_its_queues_to_say(
    capsys: pytest.CaptureFixture[str], backend: str, labels: dict[str, str], said: str
) -> None:
    """Nobody is promised what another decides."""
    scripted = ScriptedBackend()
    meta: dict[str, Any] = {"name": "digits", "namespace": "team", "uid": "u", "labels": labels}
    scripted.jobs["team", "digits"] = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {**meta, "creationTimestamp": "2026-11-20T10:00:00Z"},
        "spec": {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": {}},
    }
    place = SimpleNamespace(backend=backend, namespace="team", kind=None, open=lambda: scripted)

    suspend(cast("Place", place), "digits", suspend=False)

    assert capsys.readouterr().out == f"{said}\n"
    assert scripted.patches == [{"spec": {"runPolicy": {"suspend": False}}}]
