"""Python's garbage collector, kept from looking through what lives long again and again.

A full collection looks at every object of the process while nothing else runs: a fifth of a second for what Airflow has
imported, and two thirds of a second more for ten thousand triggers. It comes several times while they begin, may come
whenever many of them end, and comes with what a watcher lists, which is objects by the ten thousand. `gc.freeze` puts
aside what lives long, as Airflow's scheduler and DAG processor do with theirs; it is cheap, for nothing is moved or
looked at. What is put aside is freed by its reference counts as before; only cycles among it must wait until it is
taken back.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from typing import TYPE_CHECKING

from ptjob_provider.airflow.loops import OnePerLoop

if TYPE_CHECKING:
    from collections.abc import Iterator

_YOUNG = 1


class Collector:
    """Puts a process's objects aside for watchers, and while many triggers begin; takes them back when they have ended.

    Args:
        many: below so many triggers it does nothing; and so many, at least, end before anything is taken back.
        interval: seconds between two times while triggers begin.
        calm: seconds after the last beginning until the last time: each still says what its job waits for, and that
            takes as long as the log's ceiling has it take.
        quiet: seconds without an end after which something is taken back: Python looks through it then, and whose job
            ends meanwhile would wait for that.
        longest: seconds after which it is taken back although they go on ending.
    """

    def __init__(
        self, *, many: int = 500, interval: float = 1.0, calm: float = 30.0, quiet: float = 2.0, longest: float = 60.0
    ) -> None:
        self._many = many
        self._interval = interval
        self._calm = calm
        self._quiet = quiet
        self._longest = longest
        self._alive = 0
        self._watchers = 0
        self._ended = 0
        self._is_aside = False
        self._calm_at = 0.0
        self._next: asyncio.TimerHandle | None = None
        self._ended_at = 0.0
        self._back: asyncio.TimerHandle | None = None

    @contextlib.contextmanager
    def one_more(self) -> Iterator[None]:
        """Count one that lives long; inside the event loop."""
        self._alive += 1
        self._begin()
        try:
            yield
        finally:
            self._alive -= 1
            self._end()

    @contextlib.contextmanager
    def watcher(self) -> Iterator[None]:
        """Put aside what is there before the first watcher has made anything, until no watcher is left."""
        self._watchers += 1
        if self._watchers == 1:
            _put_aside()
        try:
            yield
        finally:
            self._watchers -= 1
            if not self._watchers and not self._is_aside:
                gc.unfreeze()

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        self._calm_at = loop.time() + self._calm
        if self._next is None and self._alive >= self._many:
            self._next = loop.call_later(self._interval, self._while_they_begin)

    def _while_they_begin(self) -> None:
        loop = asyncio.get_running_loop()
        self._next = None
        if self._alive >= self._many:
            self._put_aside()
            if loop.time() < self._calm_at:
                self._next = loop.call_later(self._interval, self._while_they_begin)

    def _end(self) -> None:
        loop = asyncio.get_running_loop()
        self._ended += 1
        self._ended_at = loop.time()
        if self._is_aside and self._back is None and self._ended >= max(self._many, self._alive):
            self._back = loop.call_later(self._quiet, self._when_quiet, loop.time() + self._longest)

    def _when_quiet(self, latest: float) -> None:
        loop = asyncio.get_running_loop()
        self._back = None
        if min(self._ended_at + self._quiet, latest) > loop.time():
            self._back = loop.call_later(self._quiet, self._when_quiet, latest)
        else:
            self._take_back()

    def _put_aside(self) -> None:
        if not self._is_aside:
            self._is_aside, self._ended = True, 0
        _put_aside()

    def _take_back(self) -> None:
        """Let Python find what has become garbage among it; where many are left, at once, for they stay long."""
        gc.unfreeze()
        self._is_aside = False
        if self._alive >= self._many:
            gc.collect()
            self._put_aside()
        elif self._watchers:
            gc.collect()
            _put_aside()


def _put_aside() -> None:
    gc.collect(_YOUNG)  # what is garbage already would be kept
    gc.freeze()


collectors = OnePerLoop(Collector)
