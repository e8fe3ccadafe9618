"""Tests of messages where something else decides, or no information exists. The back-end is scripted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakes import ScriptedBackend
from ptjob_provider.core.kinds.queue import QUEUE_LABEL
from rows import each_row

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result

WAITS = "team/digits continues when Kueue admits it to the queue vision: ptjob get digits"


class SilentInspector:
    """Has no events."""

    async def events(self, *_: object) -> list[dict[str, Any]]:
        return []


def with_job(**labels: str) -> ScriptedBackend:
    """Return a back-end with one suspended job."""
    scripted = ScriptedBackend()
    meta: dict[str, Any] = {"name": "digits", "namespace": "team", "uid": "u", "labels": labels}
    scripted.jobs["team", "digits"] = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {**meta, "creationTimestamp": "2026-11-20T10:00:00Z"},
        "spec": {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": {}},
    }
    return scripted


@each_row(
    ("backend", "labels", "text"),
    [
        ("kubernetes", {QUEUE_LABEL: "vision"}, WAITS),
        ("kubernetes", {}, "team/digits goes on"),
        ("local", {QUEUE_LABEL: "vision"}, "team/digits goes on"),  # there are no queues
    ],
)
def test_resume_does_not_say_that_a_job_in_a_queue_goes_on(
    ptjob: Callable[..., Result], backend: str, labels: dict[str, str], text: str
) -> None:
    """The message does not promise what Kueue decides."""
    scripted = with_job(**labels)

    result = ptjob(scripted, "resume", "digits", backend=backend)

    assert result.stdout == f"{text}\n"
    assert scripted.patches == [{"spec": {"runPolicy": {"suspend": False}}}]


def test_a_job_of_a_queue_is_not_suspended(ptjob: Callable[..., Result]) -> None:
    """Kueue would resume it at once, while the command reports success."""
    scripted = with_job(**{QUEUE_LABEL: "vision"})

    result = ptjob(scripted, "suspend", "digits", backend="kubernetes")

    assert (result.exit_code, result.stdout, scripted.patches) == (1, "", [])
    assert "team/digits is in the queue vision, and Kueue resumes what it has admitted" in result.stderr
    assert (
        ptjob(with_job(), "suspend", "digits").stdout == "team/digits is suspended; go on with: ptjob resume digits\n"
    )


@each_row(
    ("backend", "why"),
    [
        ("local", "here, only fields without effect have events"),
        ("kubernetes", "a cluster keeps them for an hour"),
    ],
)
def test_a_missing_event_list_is_explained(ptjob: Callable[..., Result], backend: str, why: str) -> None:
    """On this machine, the message does not blame a cluster."""
    result = ptjob(with_job(), "events", "digits", inspector=SilentInspector(), backend=backend)

    assert result.stderr == f"no events about team/digits: {why}\n"
