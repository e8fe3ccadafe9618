"""Tests of the rate limiter of log records that all jobs of an event loop share: turns, bursts, a full socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from airflow_adapter.stand_ins import StandInSocketsThatDrain, until
from ptjob_provider.airflow.task_log import records
from ptjob_provider.airflow.task_log.records import RateLimiter, SupervisorSockets

if TYPE_CHECKING:
    from collections.abc import Iterator

Ends = tuple[socket.socket, socket.socket]


class Job:
    """A job with this many records to write, which stores its name for each."""

    def __init__(self, name: str, records: int, written: list[str]) -> None:
        self.name, self.records, self.written = name, records, written

    def write_record(self) -> bool:
        self.records -= 1
        self.written.append(self.name)
        return self.records > 0


@pytest.fixture
def ends() -> Iterator[Ends]:
    """Return both ends of a socket of this process."""
    ours, theirs = socket.socketpair()
    ours.settimeout(0)
    yield ours, theirs
    ours.close()
    theirs.close()


def fill(ours: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):
        while True:
            ours.send(b"x" * 4096)


async def test_below_the_ceiling_nobody_waits() -> None:
    now = [0.0]
    limiter = RateLimiter(100, SupervisorSockets(), clock=lambda: now[0])

    taken = []
    for _ in range(50):
        taken.append(limiter.take())
        now[0] += 0.01

    assert taken == [True] * 50


async def test_a_burst_is_cut_off_where_it_would_stop_the_loop() -> None:
    """A burst is limited to 0.05 s worth of records; after it, the rate applies."""
    now = [0.0]
    limiter = RateLimiter(100, SupervisorSockets(), clock=lambda: now[0])

    burst = sum(limiter.take() for _ in range(1000))
    now[0] += 0.02
    after = sum(limiter.take() for _ in range(1000))

    assert (burst, after) == (5, 2)


async def test_no_more_records_are_written_than_the_ceiling_allows_and_none_is_lost() -> None:
    limiter, written = RateLimiter(200, SupervisorSockets()), []
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
    limiter, written = RateLimiter(1000, SupervisorSockets()), []

    limiter.queue(Job("loud", 500, written))
    for name in ("b", "c"):
        limiter.queue(Job(name, 3, written))
    await until(lambda: len(written) >= 20)

    assert written[:10] == ["loud", "b", "c", "loud", "b", "c", "loud", "b", "c", "loud"]


async def test_a_line_does_not_overtake_those_that_wait() -> None:
    """A line waits behind queued ones, also when the limiter has a record free."""
    limiter, written = RateLimiter(1000, SupervisorSockets()), []

    limiter.queue(Job("waits", 1, written))
    before = limiter.take()
    await until(lambda: len(written) >= 1)

    assert not before
    assert limiter.take()


async def test_one_timer_serves_all_jobs_and_none_is_left_when_nobody_waits() -> None:
    limiter, written = RateLimiter(1000, SupervisorSockets()), []
    for number in range(100):
        limiter.queue(Job(str(number), 1, written))

    await until(lambda: len(written) >= 100)
    await until(lambda: limiter._timer is None)


async def test_nothing_is_written_while_the_way_out_is_full(ends: Ends) -> None:
    """A write would block the event loop of all jobs until Airflow's supervisor reads."""
    ours, theirs = ends
    limiter, written = RateLimiter(1000, SupervisorSockets()), []
    fill(ours)

    limiter.queue(Job("a", 1, written))
    await asyncio.sleep(0.2)
    before = list(written)
    while not SupervisorSockets().is_empty():
        theirs.recv(1 << 16)
    await until(lambda: len(written) >= 1)

    assert before == []


async def test_what_was_written_is_waited_for_until_it_has_left_and_turns_rest_meanwhile(ends: Ends) -> None:
    """Airflow drops data that is still in the socket when a trigger's event arrives."""
    ours, theirs = ends
    limiter, written = RateLimiter(1000, SupervisorSockets()), []
    ours.send(b"a record")
    leaving = asyncio.create_task(limiter.drain(10))
    await asyncio.sleep(0)
    limiter.queue(Job("a", 1, written))

    await asyncio.sleep(0.1)
    before = (leaving.done(), list(written))
    theirs.recv(100)

    assert await leaving
    assert before == (False, [])
    await until(lambda: len(written) >= 1)


@pytest.mark.parametrize("while_it_moves", [False, True])
async def test_a_way_out_that_nobody_reads_is_not_waited_for_longer_than_said(
    ends: Ends, *, while_it_moves: bool
) -> None:
    """The job's end is reported anyway."""
    ours, _ = ends
    ours.send(b"a record")

    assert not await RateLimiter(1000, SupervisorSockets()).drain(0.05, while_it_moves=while_it_moves)


async def test_what_leaves_slowly_may_be_waited_for_as_long_as_it_takes() -> None:
    """A slow triggerer needs longer to read a full socket than the limit for a stuck one."""
    sockets = StandInSocketsThatDrain(5), StandInSocketsThatDrain(5)

    assert await RateLimiter(1000, sockets[0]).drain(0.01, while_it_moves=True)
    assert not await RateLimiter(1000, sockets[1]).drain(0.01)


def test_a_socket_that_nobody_ever_reads_holds_nobody_up_for_good(ends: Ends) -> None:
    """It may belong to another library; logs continue after a while."""
    ours, _ = ends
    now = [0.0]
    found = SupervisorSockets(clock=lambda: now[0])
    fill(ours)

    held_up = [found.has_room(), found.has_room()]
    now[0] = records.STUCK + 1

    assert held_up == [False, False]
    assert found.has_room()


def test_a_closed_sockets_number_may_be_somebody_elses(ends: Ends) -> None:
    """Unsent data of a connection to the cluster is not a log record."""
    ours, _ = ends
    found = SupervisorSockets()
    ours.send(b"a record")
    full = found.is_empty()
    other, far = socket.socketpair()
    other.send(b"something else")
    number = ours.detach()
    copy = socket.socket(fileno=os.dup2(other.fileno(), number, inheritable=False))

    with other, far, copy:
        assert copy.fileno() == number
        assert found.is_empty()
    assert not full
