"""What `ptjob` says where others decide, or nobody has said anything. The back-end is a script."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from fakes import ScriptedBackend
from ptjob_provider.cli.commands import events, suspend
from ptjob_provider.core.kinds.queue import QUEUE_LABEL

if TYPE_CHECKING:
    from ptjob_provider.cli.place import Place

WAITS = "team/digits goes on when its queue vision has room, which Kueue decides: ptjob get digits"


def with_job(**labels: str) -> ScriptedBackend:
    """Return a back-end with one job, which is suspended."""
    scripted = ScriptedBackend()
    meta: dict[str, Any] = {"name": "digits", "namespace": "team", "uid": "u", "labels": labels}
    scripted.jobs["team", "digits"] = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {**meta, "creationTimestamp": "2026-11-20T10:00:00Z"},
        "spec": {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": {}},
    }
    return scripted


def place_of(scripted: ScriptedBackend, backend: str) -> Place:
    """Return where that job is, and nothing is reported."""

    async def none(*_: object) -> list[dict[str, Any]]:
        return []

    async def find(backend: ScriptedBackend, name: str) -> dict[str, Any]:
        return backend.jobs["team", name]

    site = SimpleNamespace(events=none)
    place = SimpleNamespace(backend=backend, namespace="team", find=find, open=lambda: scripted, site=lambda: site)
    return cast("Place", place)


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
    scripted = with_job(**labels)

    suspend(place_of(scripted, backend), "digits", suspend=False)

    assert capsys.readouterr().out == f"{said}\n"
    assert scripted.patches == [{"spec": {"runPolicy": {"suspend": False}}}]


@pytest.mark.parametrize(
    ("backend", "why"),
    [("local", "all of its fields apply here"), ("kubernetes", "a cluster keeps them for an hour")],
)
def test_why_there_are_no_events_is_said(capsys: pytest.CaptureFixture[str], backend: str, why: str) -> None:
    """No cluster is blamed for what this machine does not know."""
    events(place_of(with_job(), backend), "digits", output=None)

    assert capsys.readouterr().err == f"no events about team/digits: {why}\n"
