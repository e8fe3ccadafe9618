"""Tests of rank 0's lines in the task's log: each once, in order, in few records when they come fast."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
from dataclasses import replace

import pytest

from airflow_adapter.stand_ins import ListLogger, until
from airflow_adapter.stand_ins import log_line as line
from ptjob_provider.airflow.task_log.sink import CONTINUES, MAX_RECORD, MAX_WAITING, TaskLog
from ptjob_provider.core.logs import STATE_SECONDS, StateFilter


@pytest.fixture
def logger() -> ListLogger:
    return ListLogger()


@pytest.fixture
def log(logger: ListLogger) -> TaskLog:
    """Return a log that writes to the logger."""
    return TaskLog(logger)


async def test_a_line_that_comes_alone_is_a_record_at_once(logger: ListLogger, log: TaskLog) -> None:
    log.line(line(0))

    assert logger.records == ["line 0"]
    assert log.cursor == line(0).cursor


async def test_lines_that_come_fast_are_all_there_once_in_few_records(
    logger: ListLogger, log: TaskLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each record blocks the event loop of all jobs."""
    monkeypatch.setenv("AIRFLOW__PTJOB__MAX_LOG_RECORDS_PER_SECOND", "100")

    for number in range(10_000):
        log.line(line(number))
        await log.room()
    await log.written()

    assert logger.text.split("\n") == [f"line {number}" for number in range(10_000)]
    assert len(logger.records) < 1000
    assert max(len(record) for record in logger.records) <= MAX_RECORD


async def test_ten_minutes_of_a_progress_bar_are_few_records(
    logger: ListLogger, log: TaskLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It changes ten times a second; the piece after which another process goes on is one whose state is written."""
    monkeypatch.setenv("AIRFLOW__PTJOB__MAX_LOG_RECORDS_PER_SECOND", "100000")
    seconds = itertools.count()
    monkeypatch.setattr(log, "_states", StateFilter(clock=lambda: next(seconds) / 10))

    for number in range(6000):
        log.line(replace(line(number, f"\r{number / 60:3.0f}%|{'#' * 50}| {number}/6000"), continues=True))
    assert log.cursor == line(5950).cursor
    log.line(line(6000, "\r100%|done| 6000/6000"))
    await log.written()

    assert logger.records[-1] == "100%|done| 6000/6000"
    assert len(logger.records) <= 10 * 60 / STATE_SECONDS + 2
    assert not any(CONTINUES in record for record in logger.records)
    assert log.cursor == line(6000).cursor


async def test_the_last_state_of_a_bar_is_written_with_what_follows_it(logger: ListLogger, log: TaskLog) -> None:
    """Also if its line never ends, because its process was killed."""
    for number in range(3):
        log.line(replace(line(number, f"\r{number}%"), continues=True))
    log.notice("the job is gone")
    log.line(replace(line(3, "\r3%"), continues=True))
    log.flush()

    assert logger.records == ["0%", "2%", "the job is gone", "3%"]
    assert log.cursor == line(3).cursor


async def test_a_reader_that_is_too_fast_waits_until_there_is_room(logger: ListLogger, log: TaskLog) -> None:
    """The memory for a log is bounded."""
    most, text = 0, "x" * 10_000

    for number in range(1000):
        log.line(line(number, text))
        most = max(most, log._size)
        await log.room()
    await log.written()

    assert sum(record.count(text) for record in logger.records) == 1000
    assert most <= MAX_WAITING + len(text) + 1000


@pytest.mark.parametrize("fails_at", [2, 3])
async def test_a_logger_that_fails_once_holds_up_neither_the_next_records_nor_the_event(
    monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    """The first record is written at once, the second by the limiter, the third is the last one."""
    monkeypatch.setenv("AIRFLOW__PTJOB__MAX_LOG_RECORDS_PER_SECOND", "20")
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    texts = [f"{number}" + "x" * (MAX_RECORD // 2) for number in range(3)]
    written = []

    class LoggerThatFailsOnce(ListLogger):
        def info(self, message: str, *args: object) -> None:
            written.append(args[0])
            if len(written) == fails_at:
                raise BrokenPipeError

    log = TaskLog(LoggerThatFailsOnce())
    for text in texts:
        log.notice(text)
    async with asyncio.timeout(10):
        await log.written()
        assert written == texts
        log.notice("the next")
        await log.written()
    assert written[-1] == "the next"


async def test_the_other_tasks_of_the_loop_have_their_turn_while_one_job_writes(log: TaskLog) -> None:
    """A reader with a whole page of lines yields to other tasks in between."""
    other = asyncio.create_task(asyncio.sleep(0))

    for number in range(1000):
        log.line(line(number))
        await log.room()

    assert other.done()


async def test_each_record_is_written_in_the_context_of_its_own_job() -> None:
    """Airflow's logger reads the trigger, and so the log file, from the context."""
    job: contextvars.ContextVar[str] = contextvars.ContextVar("job")
    written: list[tuple[str, str]] = []

    async def write(name: str) -> None:
        job.set(name)
        logger = ListLogger()
        logger.on_record = lambda: written.append((job.get(), logger.records[-1]))
        log = TaskLog(logger)
        for number in range(200):
            log.line(line(number, name))
        await log.written()

    await asyncio.gather(*(write(name) for name in "abc"))

    assert {(name, text) for name, record in written for text in record.split("\n")} == {(n, n) for n in "abc"}


async def test_lines_do_not_wait_for_the_next_one(logger: ListLogger, log: TaskLog) -> None:
    """The last lines of a burst are written after a short delay."""
    for number in range(3):
        log.line(line(number))

    await until(lambda: len(logger.text.split("\n")) >= 3, "the lines")

    assert logger.text.split("\n") == ["line 0", "line 1", "line 2"]


async def test_the_cursor_never_vouches_for_a_line_that_the_logger_has_not_got(
    logger: ListLogger, log: TaskLog
) -> None:
    """A reader that resumes after the cursor misses nothing."""
    for number in range(200):
        log.line(line(number))
    before, said = log.cursor, len(logger.records)

    log.flush()

    assert said < 200
    assert before == line(said - 1).cursor
    assert log.cursor == line(199).cursor


async def test_a_long_line_comes_in_pieces_that_can_be_put_together(logger: ListLogger, log: TaskLog) -> None:
    """Each piece but the last ends with a mark, and none is longer than a record."""
    text = "".join(chr(ord("a") + number % 26) for number in range(3 * MAX_RECORD + 5))

    log.line(line(0, text[: 2 * MAX_RECORD], continues=True))
    log.line(line(1, text[2 * MAX_RECORD :]))
    log.flush()

    pieces = logger.text.split("\n")
    assert "".join(piece.removesuffix(CONTINUES) for piece in pieces) == text
    assert [piece.endswith(CONTINUES) for piece in pieces] == [True, True, True, False]
    assert max(len(record) for record in logger.records) <= MAX_RECORD + len(CONTINUES)


async def test_an_empty_line_is_a_line(logger: ListLogger, log: TaskLog) -> None:
    for number, text in enumerate(["a", "", "b"]):
        log.line(line(number, text))
    log.flush()

    assert logger.text.split("\n") == ["a", "", "b"]


async def test_percent_signs_are_text(logger: ListLogger, log: TaskLog) -> None:
    """A progress bar is not a format string."""
    log.line(line(0, "100% %s %d"))

    assert logger.records == ["100% %s %d"]
