"""Share values and sources of changes on an event loop.

A back-end defines its sources, such as one LIST+WATCH of a namespace or one poller of local files. The first subscriber
opens a source, and it is closed some time after the last has left; ten thousand subscribers cost as much as one.
Nothing is queued: a `Notifier` signals that the state has changed, and its readers read the newest state, so that a
slow reader does not block others.
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
    """One value per event loop: created on first use, released with the loop.

    Args:
        make: creates the value; called in the running loop.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._values: WeakKeyDictionary[asyncio.AbstractEventLoop, T] = WeakKeyDictionary()

    def get(self) -> T:
        """Return the value of the running loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._values:
            self._values[loop] = self._make()
        return self._values[loop]


class Backoff:
    """Pauses between failed tries: doubled with each failure in a row, and randomized to spread the load.

    Args:
        first: maximum seconds of the pause after the first failure.
        longest: maximum seconds of any pause.

    Attributes:
        failures: number of failures in a row; set by the caller.
    """

    def __init__(self, first: float, longest: float) -> None:
        self._first, self._longest = first, longest
        self.failures = 0

    async def pause(self, *, at_least: float = 0.0) -> None:
        """Wait before the next try, for `at_least` seconds or longer; return at once after a success if that is 0."""
        seconds = min(self._first * 2.0 ** min(self.failures - 1, 20), self._longest) if self.failures else 0.0
        await asyncio.sleep(max(spread(seconds), at_least))


def spread(seconds: float) -> float:
    """Return a random number between half of the seconds and all of them."""
    return seconds * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, protects no secret


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
    """Return the result of the work or, once `stop_requested` is set, the result of `stop`; then the work has ended."""
    main, waiting = asyncio.create_task(work), asyncio.create_task(stop_requested.wait())
    try:
        await asyncio.wait({main, waiting}, return_when=asyncio.FIRST_COMPLETED)
        was_told = stop_requested.is_set() and main.cancelled()  # the work has seen it first
        return main.result() if main.done() and not was_told else await stop(main)
    finally:
        await cancelled(main, waiting)


class ChangeSource(Protocol):
    """Interface of a source of changes."""

    async def run(self) -> None:
        """Notify subscribers of changes until cancelled; an exception means that there will be no more changes."""

    def fail(self, error: BaseException) -> None:
        """Raise the error in all waiters: there will be no more changes."""


S = TypeVar("S", bound=ChangeSource)


class Notifier:
    """Signals that a state has changed; does not hold the state.

    Attributes:
        version: number of changes.
        error: why there will be no more changes; None if the source runs.
        refused: why there are no changes at the moment; None if there is no obstacle.
    """

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
        """Raise the error in waiters, as there are no updates for now; None: updates have resumed."""
        self.refused = error
        self._wake()

    def _wake(self) -> None:
        if self._changed is not None:
            self._changed.set()

    async def until(self, holds: Callable[[], bool], *, though_refused: bool = False) -> None:
        """Wait until the condition holds; raise `error` or, unless `though_refused`, `refused` if it is set."""
        while not holds():
            error = self.error or (None if though_refused else self.refused)
            if error is not None:
                raise error.with_traceback(None)  # it is raised many times, and each raise would add its frames
            self._changed = self._changed or asyncio.Event()
            self._changed.clear()
            await self._changed.wait()


@asynccontextmanager
async def shared_source(key: Hashable, make: Callable[[], S], *, linger: float) -> AsyncIterator[S]:
    """Subscribe to the source with this key; all subscribers on this loop share one source per key.

    Args:
        key: identifies the source.
        make: creates the source if it is not open.
        linger: seconds for which the source stays open after its last subscriber has left.
    """
    opened = _opened()
    shared: _Shared[S] = opened.get(key) or opened.setdefault(key, _Shared(key, make()))
    shared.subscribers += 1
    try:
        yield shared.source
    finally:
        shared.subscribers -= 1
        if not shared.subscribers:
            shared.leave(linger)


def open_keys() -> tuple[Hashable, ...]:
    """Return the keys of the sources that are open on this loop, including those without subscribers."""
    return tuple(_opened())


def alone_or_all(alone: T, scope_of: Callable[[T], T]) -> T:
    """Return the key of the source for one object: of the object alone, or of its scope if other objects are watched.

    Args:
        alone: key of the source that watches only this object.
        scope_of: returns the key of the source that watches all objects of the scope of a key.
    """
    scope = scope_of(alone)
    others = (each for each in open_keys() if isinstance(each, type(alone)) and each != alone)
    return scope if any(scope_of(each) == scope for each in others) else alone


def opened(key: Hashable) -> ChangeSource | None:
    """Return the source with this key if it is open on this loop, else None."""
    shared = _opened().get(key)
    return shared.source if shared else None


class _Shared(Generic[S]):
    """An open source, its task and the number of its subscribers."""

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
        except Exception as error:  # noqa: BLE001 - raised in the waiters, which would wait for ever otherwise
            self._close()
            self.source.fail(error)
        finally:
            self._close()

    def leave(self, linger: float) -> None:
        if self._ending is not None:
            self._ending.cancel()  # scheduled when the source had no subscribers before
        self._ending = asyncio.get_running_loop().call_later(linger, self._end_unless_used)

    def _end_unless_used(self) -> None:
        if not self.subscribers:
            self._close()
            self._task.cancel()

    def _close(self) -> None:
        with contextlib.suppress(KeyError):
            if self._siblings[self._key] is self:
                del self._siblings[self._key]


_sources: OnePerLoop[dict[Hashable, _Shared[Any]]] = OnePerLoop(dict)
"""Open sources of each loop; the only state of this module."""


def _opened() -> dict[Hashable, _Shared[Any]]:
    return _sources.get()
