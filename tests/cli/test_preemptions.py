"""Tests of `ptjob run` whose job the platform ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from preempting import PreemptingStandIn
from ptjob_provider.core.run import preemptions
from rows import each_row

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ptjob_provider.core.backend import Observation
    from ptjob_provider.core.identity import JobRef

RUN = ("run", "--name", "digits", "--image", "digits:1", "-o", "json")


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preemptions, "_FIRST_PAUSE", 0.0)


def test_a_run_survives_a_preemption_under_its_name(ptjob: Callable[..., Any]) -> None:
    """The job of the first attempt gives its name to the second; the result says what was lost."""
    backend = PreemptingStandIn("evicted")

    ran = ptjob(backend, *RUN, "--max-preemptions", "1", "--", "train")

    assert ran.exit_code == 0, ran.output
    result = json.loads(ran.stdout)
    assert (result["job"]["name"], result["attempt"]) == ("digits", 2)
    assert result["preemptions"] == [{"node": "node-1", "cause": "evicted", "seconds_lost": 60.0}]
    assert "digits was ended by the platform: master-0 (rank 0) was evicted" in ran.stderr


@each_row(
    ("flags", "created"),
    [
        ((), 1),
        (("--checkpoints", "pvc://models/c"), 4),
        (("--checkpoints", "pvc://models/c", "--max-preemptions", "0"), 1),
    ],
)
def test_a_run_goes_on_by_itself_only_with_checkpoints(
    ptjob: Callable[..., Any], flags: tuple[str, ...], created: int
) -> None:
    backend = PreemptingStandIn(*["evicted"] * 4)

    ran = ptjob(backend, *RUN, *flags, "--", "train")

    assert (ran.exit_code, backend.created) == (75, created), ran.output


@each_row("flags", [(), ("--delete-on-interrupt",)])
def test_an_interrupt_between_two_attempts_says_that_no_next_one_follows(
    ptjob: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...]
) -> None:
    """The job that is known has ended: to follow it is no use."""
    backend = PreemptingStandIn("evicted")

    def sentence(*_: Any, **__: Any) -> str:
        os.kill(os.getpid(), signal.SIGTERM)
        return "it is submitted again in an hour"

    monkeypatch.setattr(preemptions, "pause_after", lambda _: 3600.0)
    monkeypatch.setattr(preemptions, "sentence", sentence)

    ran = ptjob(backend, *RUN, "--max-preemptions", "1", *flags, "--", "train")

    assert (ran.exit_code, backend.created, backend.deleted) == (143, 1, [])
    assert "interrupted between two attempts: team/digits has ended, and no other attempt follows" in ran.stderr
    assert "ptjob get -n team digits" in ran.stderr
    assert "follow it" not in ran.stderr


class InterruptedStandIn(PreemptingStandIn):
    """Gets SIGTERM while the second job is followed."""

    async def watch(self, ref: JobRef) -> AsyncIterator[Observation]:
        if self.created == 2:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()
        async for each in super().watch(ref):
            yield each


def test_an_interrupt_of_the_second_attempt_names_it(ptjob: Callable[..., Any]) -> None:
    ran = ptjob(InterruptedStandIn("evicted"), *RUN, "--max-preemptions", "1", "--", "train")

    assert "team/digits is left as it is; follow it: ptjob follow -n team digits" in ran.stderr
