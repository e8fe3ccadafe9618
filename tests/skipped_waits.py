"""Event loop for tests marked `skips_waits`, on which waiting takes no time; their servers are tasks of the loop.

When only a timer is pending, the loop's clock jumps to that timer. Tests that wait for something outside the loop (a
process, or a server in a thread) would time out at once, so they use the usual loop. `time.monotonic` does not jump.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pytest

_GRACE = 0.005
"""Seconds for the kernel to deliver data that was written to a socket of this process."""


class _Skipping(selectors.DefaultSelector):
    """Selector that waits for sockets, but skips time."""

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
    """The usual loop with a clock that jumps, except while a thread works for the loop."""

    def __init__(self) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        """Return the time of the usual clock plus the skipped time."""
        return super().time() + self._skipping.skipped

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
