"""Share values and sources on an event loop: opened by the first subscriber, closed some time after the last.

A back-end defines its sources, such as one LIST+WATCH of a namespace or one poller of local files. Ten thousand
subscribers cost as much as one. Nothing is queued: a `Notifier` signals that the state has changed and its readers take
the newest state, so a slow reader blocks nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Hashable

T = TypeVar("T")


class OnePerLoop(Generic[T]):
    """One value per event loop: created on first use, dropped with the loop.

    Args:
        make: creates the value, inside the loop.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._values: WeakKeyDictionary[asyncio.AbstractEventLoop, T] = WeakKeyDictionary()

    def get(self) -> T:
        """Return the running loop's value."""
        loop = asyncio.get_running_loop()
        if loop not in self._values:
            self._values[loop] = self._make()
        return self._values[loop]


class Backoff:
    """Pauses between failed tries: doubled with each failure in a row, and random, so that many do not ask at once.

    Args:
        first: seconds after the first failure.
        longest: maximum seconds.

    Attributes:
        failures: number in a row.
    """

    def __init__(self, first: float, longest: float) -> None:
        self._first, self._longest = first, longest
        self.failures = 0

    async def pause(self, *, at_least: float = 0.0) -> None:
        """Wait before the next try; return at once after a success."""
        ours = min(self._first * 2.0 ** min(self.failures - 1, 20), self._longest) if self.failures else 0.0
        await asyncio.sleep(max(spread(ours), at_least))


def spread(seconds: float) -> float:
    """Return at random half of the seconds or more."""
    return seconds * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, keeps no secret


async def cancelled(*tasks: asyncio.Future[Any]) -> list[Any]:
    """Cancel the tasks, wait for their end, and return their results or errors."""
    for task in tasks:
        task.cancel()
    return await asyncio.gather(*tasks, return_exceptions=True)


async def until_stopped(
    stop_requested: asyncio.Event,
    work: Coroutine[Any, Any, T],
    stop: Callable[[asyncio.Task[T]], Coroutine[Any, Any, T]],
) -> T:
    """Return the work's result or, once `stop_requested` is set, that of `stop`; nothing of the work runs on then."""
    main, waiting = asyncio.create_task(work), asyncio.create_task(stop_requested.wait())
    try:
        await asyncio.wait({main, waiting}, return_when=asyncio.FIRST_COMPLETED)
        return main.result() if main.done() else await stop(main)
    finally:
        await cancelled(main, waiting)


class Source(Protocol):
    """A source of changes while it runs."""

    async def run(self) -> None:
        """Update all notifiers until cancelled; an exception means that no more changes will come."""

    def fail(self, error: BaseException) -> None:
        """Report to all waiters that no more changes will come."""


S = TypeVar("S", bound=Source)


class Notifier:
    """Signals changes; the state itself belongs to its owner."""

    __slots__ = ("_changed", "error", "refused", "version")

    def __init__(self) -> None:
        self.version = 0
        self.error: BaseException | None = None
        self.refused: BaseException | None = None
        self._changed: asyncio.Event | None = None

    def notify(self) -> None:
        """Signal a change."""
        self.version += 1
        self._wake()

    def fail(self, error: BaseException) -> None:
        """Raise the error in all present and future waiters."""
        self.error = error
        self.notify()

    def refuse(self, error: BaseException | None) -> None:
        """Raise the error in all waiters until the next change; None: updates have resumed."""
        self.refused = error
        self._wake()

    def _wake(self) -> None:
        if self._changed is not None:
            self._changed.set()

    async def until(self, holds: Callable[[], bool], *, though_refused: bool = False) -> None:
        """Wait for the condition; raise the source's failure, or the reason for missing updates unless tolerated."""
        while not holds():
            error = self.error or (None if though_refused else self.refused)
            if error is not None:
                raise error.with_traceback(None)  # raised many times: each raise would add its frames
            self._changed = self._changed or asyncio.Event()
            self._changed.clear()
            await self._changed.wait()


@asynccontextmanager
async def shared_source(key: Hashable, make: Callable[[], S], *, linger: float = 0.0) -> AsyncIterator[S]:
    """Subscribe to the source of this key; all subscribers on this loop share one source per key.

    Args:
        key: identifies the source.
        make: creates the source if it is not open.
        linger: seconds that it stays open after the last subscriber; without it, the source has ended on return.
    """
    opened = _opened()
    shared: _Shared[S] = opened.get(key) or opened.setdefault(key, _Shared(key, make()))
    shared.subscribers += 1
    try:
        yield shared.source
    finally:
        shared.subscribers -= 1
        if not shared.subscribers:
            await shared.leave(linger)


def open_keys() -> tuple[Hashable, ...]:
    """Return the keys of the sources that are open on this loop, including lingering ones."""
    return tuple(_opened())


def alone_or_all(alone: T, scope_of: Callable[[T], T]) -> T:
    """Return the key to watch: one object alone while no other of the same scope is watched, else all of them.

    Args:
        alone: key of the one object.
        scope_of: returns the key of all objects of a key's scope.
    """
    scope = scope_of(alone)
    others = (each for each in open_keys() if isinstance(each, type(alone)) and each != alone)
    return scope if any(scope_of(each) == scope for each in others) else alone


def opened(key: Hashable) -> Source | None:
    """Return the source of this key if it is open on this loop."""
    shared = _opened().get(key)
    return shared.source if shared else None


class _Shared(Generic[S]):
    """A source and its subscriber count."""

    def __init__(self, key: Hashable, source: S) -> None:
        self.source = source
        self.subscribers = 0
        self._key = key
        self._siblings = _opened()
        self._ending: asyncio.TimerHandle | None = None
        self._task = asyncio.create_task(self._run(), name="ptjob-source")

    async def _run(self) -> None:
        try:
            await self.source.run()
        except Exception as error:  # noqa: BLE001 - raised again in the waiters, who would not learn of it otherwise
            self._close()
            self.source.fail(error)
        finally:
            self._close()

    async def leave(self, linger: float) -> None:
        if self._ending is not None:
            self._ending.cancel()  # scheduled by an earlier last subscriber
        if linger:
            self._ending = asyncio.get_running_loop().call_later(linger, self._end_unless_used)
        else:
            self._end_unless_used()
            await asyncio.wait({self._task})

    def _end_unless_used(self) -> None:
        if not self.subscribers:
            self._close()
            self._task.cancel()

    def _close(self) -> None:
        with contextlib.suppress(KeyError):
            if self._siblings[self._key] is self:
                del self._siblings[self._key]


_sources: OnePerLoop[dict[Hashable, _Shared[Any]]] = OnePerLoop(dict)
"""Open sources of each loop: the only module state."""


def _opened() -> dict[Hashable, _Shared[Any]]:
    return _sources.get()
