"""An event loop on which waiting takes no time: of tests marked `skips_waits`, whose servers are tasks of the loop.

When nothing is ready but a timer, the loop's clock jumps to that timer. What comes from elsewhere (a process, a server
in a thread) would find its time-outs gone, so such tests keep the usual loop. Code that reads `time.monotonic` does not
see the jumps.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pytest

_GRACE = 0.005
"""Seconds in which the kernel passes on what was written to a socket of this process."""


class _Skipping(selectors.DefaultSelector):
    """Waits for sockets only, never for a time."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped = 0.0
        self.threads = 0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None or timeout <= _GRACE or self.threads:
            return super().select(timeout)
        found = super().select(_GRACE)
        if not found:
            self.skipped += timeout - _GRACE
        return found


class SkippingLoop(asyncio.SelectorEventLoop):
    """The usual loop with a clock that jumps; it stands still while a thread works for it."""

    def __init__(self) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        """Return the usual clock and what was skipped."""
        return super().time() + self._skipping.skipped

    def run_in_executor(self, *args: Any) -> asyncio.Future[Any]:
        """Have the clock wait for the thread."""
        self._skipping.threads += 1
        future = super().run_in_executor(*args)
        future.add_done_callback(self._thread_ended)
        return future

    def _thread_ended(self, _: asyncio.Future[Any]) -> None:
        self._skipping.threads -= 1


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Give marked tests this loop, and the usual one to all others."""
    if item.get_closest_marker("skips_waits"):
        return {"skips waits": SkippingLoop}
    return {"usual": asyncio.new_event_loop}
