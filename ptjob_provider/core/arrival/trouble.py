"""A source that cannot be listed: what is said of it, how often, and when it is tried again."""

from __future__ import annotations

LONGEST_PAUSE = 900.0
"""Seconds between two attempts at a source in trouble, at most (before the jitter)."""

SHORTEST_PAUSE = 5.0


class SourceTrouble(Exception):
    """A look at the source failed.

    Args:
        kind: what tells one trouble from another; each is said once.
        text: what was seen, for people, and what helps if that is known.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


class Troubles:
    """What was said of a source: each kind of trouble once, and once that it is over.

    Args:
        source: its address.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._said: set[str] = set()
        self._since = 0.0
        self.failures = 0

    def failed(self, trouble: SourceTrouble, now: float) -> str | None:
        """Count a failure; return what is to be said of it, or None if that was said."""
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
        """Have the trouble as over; return what is to be said, or None if there was none."""
        failures, self.failures = self.failures, 0
        self._said.clear()
        if not failures:
            return None
        attempts = "1 attempt" if failures == 1 else f"{failures} attempts"
        return f"{self._source}: can be listed again, {now - self._since:.0f} s and {attempts} after the first failure"


def pause_after(failures: int, poll_seconds: float, draw: float) -> float:
    """Return the seconds until the next look.

    Args:
        failures: how many looks have failed one after the other.
        poll_seconds: between two looks at a source that is well.
        draw: from 0 to 1, by chance: watchers that began together must not stay together.
    """
    if not failures:
        return poll_seconds * (1 + 0.1 * draw)
    first = max(poll_seconds, SHORTEST_PAUSE)
    doubled = first * 2.0 ** min(failures - 1, 16)
    return max(first, min(doubled, LONGEST_PAUSE)) * (1 + 0.5 * draw)
