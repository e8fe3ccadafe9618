"""Tests of one task's log while its trigger moves between triggerers: nothing is missing, and repeats are marked."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from airflow_adapter.stand_ins import ListLogger, StandInSupervisor, StandInTaskInstance
from airflow_adapter.stand_ins import log_line as line
from ptjob_provider.airflow.task_log.continued import ContinuedLog
from ptjob_provider.airflow.task_log.progress_store import ProgressStore
from ptjob_provider.airflow.task_log.rate_limiter import RateLimiter
from ptjob_provider.core.run.training_state import TrainingState

if TYPE_CHECKING:
    from airflow_adapter.stand_ins import FakeComms

LINES = 12
STOPPED, KILLED, FROZEN = "stopped", "killed", "frozen"
SINCE = re.compile(r"── lines since (?:the beginning|2026-11-20T10:00:(\d\d)Z) may be repeated")


@dataclass
class Turn:
    """A triggerer has the trigger, writes lines, stores the cursor after some of them, and loses the trigger."""

    triggerer: int
    written: int
    stored: int
    end: str


@dataclass
class Triggerer:
    """A triggerer: what its process remembers, and its part of the log."""

    store: ProgressStore = field(default_factory=lambda: ProgressStore(RateLimiter(1e6, StandInSupervisor().unread)))
    part: ListLogger = field(default_factory=ListLogger)


turns = st.lists(
    st.builds(
        Turn,
        triggerer=st.integers(0, 2),
        written=st.integers(0, 4),
        stored=st.integers(0, 4),
        end=st.sampled_from([STOPPED, KILLED, FROZEN]),
    ),
    min_size=1,
    max_size=6,
)


async def take(turn: Turn, triggerers: list[Triggerer], ended: list[Triggerer]) -> None:
    """Run the trigger in this triggerer, whose part of the log Airflow begins anew."""
    triggerer = triggerers[turn.triggerer]
    triggerer.part = ListLogger()
    log = ContinuedLog(StandInTaskInstance(), "u-1", logger=triggerer.part, state=TrainingState())
    log._store = triggerer.store
    cursor = await log.begin()
    first = cursor.ordinal + 1 if cursor else 1
    for number in range(first, min(first + turn.written, LINES + 1)):
        log.sink.line(line(number))
        await log.sink.written()
        if number == first + turn.stored:
            await triggerer.store.save(log)
    log.end()
    if turn.end == STOPPED:
        await log.leave()
    if turn.end != FROZEN:
        ended.append(triggerer)
        triggerers[turn.triggerer] = Triggerer()


BACK_AND_FORTH = [Turn(0, 1, 0, FROZEN), Turn(1, 0, 0, FROZEN), Turn(0, 0, 0, STOPPED)]
"""The first triggerer loses a line that it has stored, and the second one began after it."""


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(moves=BACK_AND_FORTH, last=1)
@given(moves=turns, last=st.integers(0, 2))
def test_no_line_is_missing_and_one_says_since_when_lines_may_be_repeated_however_the_trigger_moves(
    comms: FakeComms, moves: list[Turn], last: int
) -> None:
    comms.xcoms.clear()

    async def move() -> list[str]:
        triggerers, ended = [Triggerer() for _ in range(3)], []
        for turn in (*moves, Turn(triggerer=last, written=LINES, stored=LINES, end=STOPPED)):
            await take(turn, triggerers, ended)
        return [text for each in (*ended, *triggerers) for record in each.part.records for text in record.split("\n")]

    log = asyncio.run(move())

    numbers = [int(text.split()[1]) for text in log if text.startswith("line ")]
    since = [int(found[1] or 0) for found in map(SINCE.match, log) if found]
    repeated = {number for number in numbers if numbers.count(number) > 1}
    assert set(numbers) == set(range(1, LINES + 1))
    assert all(number > min(since) for number in repeated)
    assert len(since) <= len(moves)


async def test_another_task_that_follows_the_same_job_has_a_log_of_its_own(comms: FakeComms) -> None:
    """A sensor follows the operator's job in the same triggerer, and resumes where the sensor's own log stopped."""
    comms.xcoms["progress"] = {"uid": "u-1", "cursor": line(5).cursor.to_dict()}
    first = await ContinuedLog(StandInTaskInstance(), "u-1", logger=ListLogger(), state=TrainingState()).begin()
    comms.xcoms["progress"] = {"uid": "u-1", "cursor": line(2).cursor.to_dict()}

    sensors = await ContinuedLog(
        StandInTaskInstance(id="the sensor's"), "u-1", logger=ListLogger(), state=TrainingState()
    ).begin()

    assert (first, sensors) == (line(5).cursor, line(2).cursor)


async def test_a_log_whose_event_was_fired_is_forgotten(comms: FakeComms) -> None:
    log = ContinuedLog(StandInTaskInstance(), "u-1", logger=ListLogger(), state=TrainingState())
    await log.begin()
    remembered = len(log._store.began)

    log.fired()

    assert (remembered, len(log._store.began)) == (1, 0)
