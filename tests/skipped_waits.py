"""Event loop for tests marked `skips_waits`, on which waiting takes no time; their servers are tasks of the loop.

When only a timer is pending, the loop's clock jumps to that timer. Tests that wait for something outside the loop (a
process, or a server in a thread) would time out at once, so they use the usual loop. `time.monotonic` does not jump.
"""

from __future__ import annotations

import asyncio
import selectors
import socket
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pytest

_GRACE = 0.005
"""Seconds in which the kernel usually delivers what this process has written to a socket; `_delivered` makes sure."""


class _Skipping(selectors.DefaultSelector):
    """Selector that waits for sockets, but skips time.

    Attributes:
        now: the loop's time. Only waiting takes time, so a slow machine has as much of it as a fast one.
        threads: number of threads that work for the loop.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = time.monotonic()
        self.threads = 0
        self._echo = socket.socket(type=socket.SOCK_DGRAM)
        self._echo.bind(("127.0.0.1", 0))
        self._echo.connect(self._echo.getsockname())

    def select(self, timeout: float | None = None) -> list[Any]:
        found = super().select(timeout if timeout is None or self.threads else min(timeout, _GRACE))
        if timeout and not found and not (found := self._delivered()):
            self.now += timeout
        return found

    def close(self) -> None:
        super().close()
        self._echo.close()

    def _delivered(self) -> list[Any]:
        """Return which sockets are ready once the loopback device has delivered what was written before.

        Twice, because a connection is ready only after the kernel's answer.
        """
        for _ in range(2):
            self._echo.send(b".")
            self._echo.recv(1)
        return super().select(0)


class SkippingLoop(asyncio.SelectorEventLoop):
    """The usual loop with a clock that jumps, except while a thread works for the loop."""

    def __init__(self) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        """Return the time at which the loop began plus what it has waited and skipped."""
        return self._skipping.now

    def run_in_executor(self, *args: Any) -> asyncio.Future[Any]:
        """Stop the jumps until the thread has finished."""
        self._skipping.threads += 1
        future = super().run_in_executor(*args)
        future.add_done_callback(self._thread_ended)
        return future

    def _thread_ended(self, _: asyncio.Future[Any]) -> None:
        self._skipping.threads -= 1


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Use the skipping loop for marked tests and the usual loop for all others."""
    if item.get_closest_marker("skips_waits"):
        return {"skips waits": SkippingLoop}
    return {"usual": asyncio.new_event_loop}
