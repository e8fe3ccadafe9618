"""Tests of a step whose job the platform ends: the step makes the next attempt, and a next try knows the count."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from kfp_adapter.pod_stand_in import pod
from kfp_adapter.tries import Try
from preempting import PreemptingStandIn
from ptjob_provider.core.run import preemptions
from ptjob_provider.core.run.outcome import Outcome
from ptjob_provider.kfp.termination import Terminated
from rows import each_row

if TYPE_CHECKING:
    from ptjob_provider.core.identity import JobRef


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preemptions, "_FIRST_PAUSE", 0.0)


@each_row(
    ("fields", "retry", "created"),
    [
        ({"max_preemptions": 2}, None, 3),
        ({"checkpoints": "pvc://models/digits"}, None, 4),
        ({}, 0, 4),
        ({}, None, 1),
    ],
)
def test_a_step_goes_on_after_as_many_preemptions_as_allowed(
    fields: dict[str, Any], retry: int | None, created: int
) -> None:
    """Three for a step with checkpoints or retries, none for any other."""
    backend = PreemptingStandIn(*["evicted"] * 4)

    _, _, outcome = asyncio.run(Try(backend=backend, retry=retry, fields={"workers": 1, **fields}).training.until_end())

    assert outcome.outcome is Outcome.FAILED
    assert (backend.created, len(outcome.preemptions)) == (created, created)


def test_a_next_try_goes_on_with_the_count_of_a_step_that_was_lost_between_two_attempts() -> None:
    """The step's pod was evicted, too, when the old job was deleted and the next one did not exist yet."""
    backend, noted = PreemptingStandIn("evicted", "evicted"), dict[str, list[str]]()
    first, second = (Try(backend=backend, pod=pod(f"uid-{each}", noted=noted), retry=each) for each in (0, 1))

    async def lost(*_: Any, **__: Any) -> JobRef:
        raise KeyboardInterrupt

    create = backend.submit

    async def submit(*args: Any, **kwargs: Any) -> JobRef:
        backend.submit = lost  # type: ignore[method-assign]
        return await create(*args, **kwargs)

    backend.submit = submit  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(first.training.until_end())
    backend.submit = create  # type: ignore[method-assign]
    assert not backend.jobs

    _, _, outcome = asyncio.run(second.training.until_end())

    assert (outcome.outcome, backend.attempts, len(outcome.preemptions)) == (Outcome.SUCCEEDED, [1, 2, 3], 2)


def test_a_termination_during_the_pause_creates_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = PreemptingStandIn("evicted", "evicted")

    def terminated(count: int) -> float:
        if count == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return 300.0 * (count - 1)

    monkeypatch.setattr(preemptions, "pause_after", terminated)

    with pytest.raises(Terminated):
        asyncio.run(Try(backend=backend, fields={"workers": 1, "max_preemptions": 2}).training.until_end())

    assert (backend.created, backend.running) == (2, [])
