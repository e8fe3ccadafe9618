"""Runs blocking calls next to an event loop, in daemon threads that do not delay the process's exit.

The threads of `asyncio.to_thread` are joined when the loop is closed and once more at the interpreter's exit: a thread
that hangs in a network file system would keep a triggerer from stopping.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ptjob_provider.core.loops import OnePerLoop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

T = TypeVar("T")

AT_ONCE = 4
"""Calls of one event loop that compute at the same time: each running thread takes time from the loop."""

LONGEST_TURN = 10.0
"""Seconds after which a call no longer blocks others: it hangs or waits, and does not compute."""


class AllStuck(Exception):
    """The maximum number of calls has not returned."""


class _Turns:
    """Limits the number of concurrent calls, and stops counting those that take long."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(AT_ONCE)

    @contextlib.asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Hold a slot; another call may get it before this one ends, if this one takes too long."""
        await self._free.acquire()
        end = asyncio.get_running_loop().call_later(LONGEST_TURN, self._free.release)
        try:
            yield
        finally:
            if end.when() > asyncio.get_running_loop().time():
                end.cancel()
                self._free.release()


_turns = OnePerLoop(_Turns)


class Threads:
    """Runs one kind of call, each in a daemon thread of its own.

    Args:
        name: the threads' name.
        most: maximum number of calls in progress, including those that were given up.
    """

    def __init__(self, name: str, *, most: int = 2) -> None:
        self._name = name
        self._most = most
        self._under_way = 0

    async def call(self, function: Callable[[], T], *, within: float) -> T:
        """Return what the function returns, or raise what it raises.

        Raises:
            TimeoutError: it has not returned within these seconds; its thread continues.
            AllStuck: too many calls have not returned; the function was not started.
        """
        if self._under_way >= self._most:
            raise AllStuck(f"{self._under_way} earlier calls have not returned")
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        async with _turns.get().one():
            self._under_way += 1
            threading.Thread(target=self._work, args=(function, answer), name=self._name, daemon=True).start()
            return await asyncio.wait_for(answer, within)

    def _work(self, function: Callable[[], T], answer: asyncio.Future[T]) -> None:
        try:
            settle = partial(answer.set_result, function())
        except Exception as error:  # noqa: BLE001 - raised in the waiting task
            settle = partial(answer.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits any more
            answer.get_loop().call_soon_threadsafe(self._deliver, answer, settle)

    def _deliver(self, answer: asyncio.Future[T], settle: Callable[[], None]) -> None:
        self._under_way -= 1
        if not answer.done():
            settle()
