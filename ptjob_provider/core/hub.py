"""Shared sources on an event loop: opened by the first subscriber, shared, closed some time after the last.

A back-end defines its sources, such as one LIST+WATCH of a namespace or one poller of local files. Ten thousand
subscribers cost as much as one. Nothing is queued: a `Mailbox` signals that the state has changed and its readers take
the newest state, so a slow reader blocks nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from ptjob_provider.core.loops import OnePerLoop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Hashable


class Source(Protocol):
    """Where news comes from, for as long as it runs."""

    async def run(self) -> None:
        """Keep all mailboxes up to date until cancelled; raising means that no more news will come."""

    def fail(self, error: BaseException) -> None:
        """Tell all who wait that no more news will come."""


S = TypeVar("S", bound=Source)


class Mailbox:
    """Says that there is news; the state itself is its owner's."""

    __slots__ = ("_changed", "error", "refused", "version")

    def __init__(self) -> None:
        self.version = 0
        self.error: BaseException | None = None
        self.refused: BaseException | None = None
        self._changed: asyncio.Event | None = None

    def ring(self) -> None:
        """Say that something has changed."""
        self.version += 1
        self._wake()

    def fail(self, error: BaseException) -> None:
        """Have it raised in everybody who waits, now and later."""
        self.error = error
        self.ring()

    def refuse(self, error: BaseException | None) -> None:
        """Have it raised in everybody who waits, as long as there is no news because of it; None: news comes again."""
        self.refused = error
        self._wake()

    def _wake(self) -> None:
        if self._changed is not None:
            self._changed.set()

    async def until(self, holds: Callable[[], bool], *, though_refused: bool = False) -> None:
        """Return when it holds, or raise what the source failed with, or what keeps news away unless that is borne."""
        while not holds():
            error = self.error or (None if though_refused else self.refused)
            if error is not None:
                raise error.with_traceback(None)  # it may be raised many times: each would add its frames
            self._changed = self._changed or asyncio.Event()
            self._changed.clear()
            await self._changed.wait()


@asynccontextmanager
async def joined(key: Hashable, make: Callable[[], S], *, linger: float = 0.0) -> AsyncIterator[S]:
    """Give the source of this key; everybody on this loop who gives the same key gets the same one.

    Args:
        key: what the source is about.
        make: makes it, if it is not open.
        linger: seconds that it is kept open for the next one after the last; without, it has ended afterwards.
    """
    opened = _opened()
    shared: _Shared[S] = opened.get(key) or opened.setdefault(key, _Shared(key, make()))
    shared.users += 1
    try:
        yield shared.source
    finally:
        shared.users -= 1
        if not shared.users:
            await shared.leave(linger)


def open_keys() -> tuple[Hashable, ...]:
    """Return what the sources are about that somebody on this loop waits on, or has until a moment ago."""
    return tuple(_opened())


def opened(key: Hashable) -> Source | None:
    """Return the source of this key if it is open on this loop."""
    shared = _opened().get(key)
    return shared.source if shared else None


class _Shared(Generic[S]):
    """A source with its users."""

    def __init__(self, key: Hashable, source: S) -> None:
        self.source = source
        self.users = 0
        self._key = key
        self._siblings = _opened()
        self._ending: asyncio.TimerHandle | None = None
        self._task = asyncio.create_task(self._run(), name="ptjob-hub")

    async def _run(self) -> None:
        try:
            await self.source.run()
        except Exception as error:  # noqa: BLE001 - raised again in whoever waits: nobody else would hear of it
            self._close()
            self.source.fail(error)
        finally:
            self._close()

    async def leave(self, linger: float) -> None:
        if self._ending is not None:
            self._ending.cancel()  # it counts from one who left before
        if linger:
            self._ending = asyncio.get_running_loop().call_later(linger, self._end_unless_used)
        else:
            self._end_unless_used()
            await asyncio.wait({self._task})

    def _end_unless_used(self) -> None:
        if not self.users:
            self._close()
            self._task.cancel()

    def _close(self) -> None:
        with contextlib.suppress(KeyError):
            if self._siblings[self._key] is self:
                del self._siblings[self._key]


_sources: OnePerLoop[dict[Hashable, _Shared[Any]]] = OnePerLoop(dict)
"""The open sources of each loop: the one state of the module."""


def _opened() -> dict[Hashable, _Shared[Any]]:
    return _sources.get()
