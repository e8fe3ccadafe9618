"""Describe failed listings of a source for the person who has to fix it, and decide when to retry them."""

from __future__ import annotations

from ptjob_provider.airflow.masking import masked

LONGEST_PAUSE = 900.0
"""Maximum seconds between two attempts to list a failing source, before the jitter."""

SHORTEST_PAUSE = 5.0


class SourceTrouble(Exception):
    """Error of a failed listing of the source.

    Args:
        kind: identifies the problem; each kind is reported once.
        text: description of the problem.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


class Troubles:
    """Reports each kind of problem of a source once, and once that the source works again.

    Args:
        source: the source's address.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._reported: set[str] = set()
        self._since = 0.0
        self.failures = 0

    def failed(self, trouble: SourceTrouble, now: float) -> str | None:
        """Count a failure; return its report, or None if it was reported before."""
        if not self.failures:
            self._since = now
        self.failures += 1
        if trouble.kind in self._reported:
            return None
        self._reported.add(trouble.kind)
        return (
            f"{self._source}: {trouble.text}. Nothing is lost: what arrives meanwhile is announced later. It is tried "
            f"again, with pauses of up to {LONGEST_PAUSE / 60:.0f} min, and this is not logged again"
        )

    def worked(self, now: float) -> str | None:
        """Mark the source as working; return the report, or None if there was no failure."""
        failures, self.failures = self.failures, 0
        self._reported.clear()
        if not failures:
            return None
        attempts = "1 attempt" if failures == 1 else f"{failures} attempts"
        return f"{self._source}: can be listed again, {now - self._since:.0f} s and {attempts} after the first failure"


def pause_after(failures: int, poll_seconds: float, draw: float) -> float:
    """Return the seconds until the next listing.

    Args:
        failures: number of consecutive failures.
        poll_seconds: interval for a working source.
        draw: a random number from 0 to 1, which spreads watchers that started together.
    """
    if not failures:
        return poll_seconds * (1 + 0.1 * draw)
    first = max(poll_seconds, SHORTEST_PAUSE)
    doubled = first * 2.0 ** min(failures - 1, 16)
    return max(first, min(doubled, LONGEST_PAUSE)) * (1 + 0.5 * draw)


_LONGEST = 300
"""Maximum characters of a store's own message; some return a whole page."""


def trouble_of(error: Exception) -> SourceTrouble:
    """Return the trouble that a failed listing means, in the words of the error; its type is the kind."""
    kind, message = type(error).__name__, " ".join(masked(str(error)).split())
    detail = f"{kind}: {message}" if message else kind
    return SourceTrouble(kind, f"it cannot be listed ({detail[:_LONGEST]})")
