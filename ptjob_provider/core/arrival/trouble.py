"""Report and retry failed listings of a source."""

from __future__ import annotations

LONGEST_PAUSE = 900.0
"""Maximum seconds between two tries at a failing source (before the jitter)."""

SHORTEST_PAUSE = 5.0


class SourceTrouble(Exception):
    """A listing of the source failed.

    Args:
        kind: identifies the problem; each kind is reported once.
        text: the problem for people, with a remedy if known.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


class Troubles:
    """Reported problems of a source: each kind once, and once that it works again.

    Args:
        source: its address.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._said: set[str] = set()
        self._since = 0.0
        self.failures = 0

    def failed(self, trouble: SourceTrouble, now: float) -> str | None:
        """Count a failure; return its report, or None if it was reported before."""
        if not self.failures:
            self._since = now
        self.failures += 1
        if trouble.kind in self._said:
            return None
        self._said.add(trouble.kind)
        return (
            f"{self._source}: {trouble.text}. Nothing is lost: what arrives meanwhile is announced later. It is tried "
            f"again, with pauses of up to {LONGEST_PAUSE / 60:.0f} min, and this is not said again"
        )

    def worked(self, now: float) -> str | None:
        """Mark the source as working; return the report, or None if there was no failure."""
        failures, self.failures = self.failures, 0
        self._said.clear()
        if not failures:
            return None
        attempts = "1 attempt" if failures == 1 else f"{failures} attempts"
        return f"{self._source}: can be listed again, {now - self._since:.0f} s and {attempts} after the first failure"


def pause_after(failures: int, poll_seconds: float, draw: float) -> float:
    """Return the seconds until the next listing.

    Args:
        failures: number of consecutive failures.
        poll_seconds: interval for a working source.
        draw: random, from 0 to 1: spreads watchers that started together.
    """
    if not failures:
        return poll_seconds * (1 + 0.1 * draw)
    first = max(poll_seconds, SHORTEST_PAUSE)
    doubled = first * 2.0 ** min(failures - 1, 16)
    return max(first, min(doubled, LONGEST_PAUSE)) * (1 + 0.5 * draw)
