"""Tests of the rate limiter of log records that all jobs of an event loop share: turns, bursts, what is unread."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter

from airflow_adapter.stand_ins import StandInSupervisor, until
from ptjob_provider.airflow.task_log.rate_limiter import MAX_UNREAD, RateLimiter


class Job:
    """A job with this many records to write, which stores its name for each."""

    def __init__(self, name: str, records: int, written: list[str]) -> None:
        self.name, self.records, self.written = name, records, written

    def write_record(self) -> bool:
        self.records -= 1
        self.written.append(self.name)
        return self.records > 0


async def test_a_burst_is_cut_off_where_it_would_stop_the_loop() -> None:
    """A burst is limited to 0.05 s worth of records; after it, the rate applies."""
    now = [0.0]
    limiter = RateLimiter(100, StandInSupervisor().unread, clock=lambda: now[0])

    burst = sum(limiter.take() for _ in range(1000))
    now[0] += 0.02
    after = sum(limiter.take() for _ in range(1000))

    assert (burst, after) == (5, 2)


async def test_no_more_records_are_written_than_the_ceiling_allows_and_none_is_lost() -> None:
    limiter, written = RateLimiter(200, StandInSupervisor().unread), []
    loop = asyncio.get_running_loop()
    began = loop.time()

    for name in "abcdefghij":
        limiter.queue(Job(name, 10, written))
    await until(lambda: len(written) >= 100)
    took = loop.time() - began

    assert Counter(written) == dict.fromkeys("abcdefghij", 10)
    assert took > (100 - 10) / 200 * 0.9  # ten of them are the burst


async def test_jobs_take_turns_however_much_one_of_them_writes() -> None:
    """A job with little output waits for one record of each other job, not for all of a loud job's."""
    limiter, written = RateLimiter(1000, StandInSupervisor().unread), []

    limiter.queue(Job("loud", 500, written))
    for name in ("b", "c"):
        limiter.queue(Job(name, 3, written))
    await until(lambda: len(written) >= 20)

    assert written[:10] == ["loud", "b", "c", "loud", "b", "c", "loud", "b", "c", "loud"]


async def test_a_line_does_not_overtake_those_that_wait() -> None:
    """A line waits behind queued ones, also when the limiter has a record free."""
    limiter, written = RateLimiter(1000, StandInSupervisor().unread), []

    limiter.queue(Job("waits", 1, written))
    before = limiter.take()
    await until(lambda: len(written) >= 1)

    assert not before
    assert limiter.take()


async def test_one_timer_serves_all_jobs_and_none_is_left_when_nobody_waits() -> None:
    limiter, written = RateLimiter(1000, StandInSupervisor().unread), []
    for number in range(100):
        limiter.queue(Job(str(number), 1, written))

    await until(lambda: len(written) >= 100)
    await until(lambda: limiter._timer is None)


async def test_no_line_is_written_while_much_is_unread_by_airflow() -> None:
    """A write to a full socket would block the event loop of all jobs until Airflow's supervisor reads."""
    airflow, written = StandInSupervisor(MAX_UNREAD + 1), []
    limiter = RateLimiter(1000, airflow.unread)

    limiter.queue(Job("a", 1, written))
    await until(lambda: airflow.questions > 3, "some rounds of turns")
    before = list(written)
    airflow.left = MAX_UNREAD
    await until(lambda: len(written) >= 1)

    assert before == []


async def test_draining_waits_until_written_lines_are_read_and_pauses_the_turns() -> None:
    """Airflow drops data that is still in the socket when a trigger's event arrives."""
    airflow, written = StandInSupervisor(8), []
    limiter = RateLimiter(1000, airflow.unread)
    leaving = asyncio.create_task(limiter.drain(10))
    await asyncio.sleep(0)
    limiter.queue(Job("a", 1, written))

    await until(lambda: airflow.questions > 10, "some rounds of turns")
    before = (leaving.done(), list(written))
    airflow.left = 0

    assert await leaving
    assert before == (False, [])
    await until(lambda: len(written) >= 1)


async def test_an_airflow_that_reads_nothing_is_not_waited_for_longer_than_said() -> None:
    """The job's end is reported anyway."""
    assert not await RateLimiter(1000, StandInSupervisor(8).unread).drain(0.05)


async def test_an_airflow_that_reads_slowly_is_waited_for_as_long_as_it_takes() -> None:
    """A slow triggerer needs longer to read a full socket than the limit for a stuck one."""
    assert await RateLimiter(1000, StandInSupervisor(5, at_a_time=1).unread).drain(0.01)


CHILD = """
import os, socket, structlog
from airflow.sdk.execution_time.supervisor import _configure_logs_over_json_channel as as_airflow
from ptjob_provider.airflow.supervisor import unread_bytes

records, logs = socket.socketpair()
requests, answers = socket.socketpair()
os.dup2(requests.fileno(), 0)
as_airflow(records.detach())
seen = [unread_bytes()]
structlog.get_logger("ptjob").info("a line of rank 0")
seen.append(unread_bytes())
assert b"a line of rank 0" in logs.recv(1 << 16)
seen.append(unread_bytes())
requests.send(b"a request")
seen.append(unread_bytes())
print([bool(each) for each in seen])
"""


def test_records_and_requests_that_airflow_has_not_read_are_counted() -> None:
    """In a process whose logger Airflow itself has set up, as in those of triggerers and tasks."""
    shown = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=False)

    assert shown.stdout.splitlines()[-1:] == ["[False, True, False, True]"], shown.stderr


def test_a_process_without_a_supervisor_has_nothing_unread() -> None:
    """Under `dag.test()` the records go to a terminal or a file."""
    code = "from ptjob_provider.airflow.supervisor import unread_bytes; print(unread_bytes())"
    shown = subprocess.run(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )

    assert shown.stdout.splitlines()[-1:] == ["0"], shown.stderr
