"""Whether a stream of a log may have left out a file, judged by how it comes. Pure: instants in, doubts out.

The kubelet notices rotation only once it has been at the end of a file; and it goes on in the newest file, so that a
reader who is two rotations behind loses the one between. Both take a reader that holds the stream up: by so much that
the buffers on the way are full, and for longer than the kubelet can rotate in (every three seconds at the soonest).
Kubelets before 1.27, and in some reports later ones, stay in the old file for good (kubernetes/kubernetes#115701): a
silence after so much that a file may be full is doubtful, too. Whoever doubts opens the stream again, and the line of
the last place tells whether anything is missing.
"""

from __future__ import annotations

from ptjob_provider.core.logs import nanoseconds

_AT_END = 0.5
"""Seconds without a byte after which the kubelet has been at the end of the file."""

_FULL = 6 * 1024 * 1024
"""Bytes of a stream that are a file of 10 MiB at most, the kubelet's usual limit."""

_SILENCE = 60.0
"""Seconds without a byte after which a stream that may have filled a file is doubted."""

_BUFFERS = 64 * 1024
"""Bytes that lie on the way at least while the kubelet waits for a reader."""

_ROTATION = 3.0
_SECOND = 1e9


class Pace:
    """How one stream comes.

    Args:
        opened_at: of the loop's clock, as all instants.
    """

    def __init__(self, opened_at: float) -> None:
        self._opened_at = opened_at
        self._has_been_at_end = False
        self._waited = 0.0
        self._size = 0
        self._total = 0
        self._now = opened_at
        self._last = ""

    def take(self, size: int, *, waited: float, now: float) -> None:
        """Take note of a chunk, and how long it was waited for."""
        if waited >= _AT_END:
            self._has_been_at_end, self._size = True, 0
        self._waited, self._now = waited, now
        self._size += size
        self._total += size

    def patience(self, now: float) -> float | None:
        """Return the seconds to wait for the next byte before the stream is doubted; None if there is no reason to.

        Short where the end of the first file is reached so late that it may not be the newest any more.
        """
        if not self._has_been_at_end and self._is_held_up(now, _ROTATION):
            return _AT_END
        return _SILENCE if self._total >= _FULL else None

    def skips_before(self, timestamp: str) -> bool:
        """Whether the time before this line is so long, and was so little waited for, that a file may be missing."""
        before, self._last = self._last, timestamp
        if before[:19] in {"", timestamp[:19]} or not self._is_held_up(self._now, 2 * _ROTATION):
            return False
        between = (nanoseconds(timestamp) - nanoseconds(before)) / _SECOND
        return between >= _ROTATION and self._waited < between / 2

    def _is_held_up(self, now: float, seconds: float) -> bool:
        return self._size >= _BUFFERS and now - self._opened_at >= seconds
