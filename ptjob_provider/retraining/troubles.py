"""Report and retry failed listings of a source, in words for the person who has to fix it."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, NamedTuple

from ptjob_provider.airflow.masking import masked

if TYPE_CHECKING:
    from ptjob_provider.retraining.sources import Source

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
            f"again, with pauses of up to {LONGEST_PAUSE / 60:.0f} min, and this is not logged again"
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


_LONGEST = 300
"""Maximum characters of a store's own message; some return a whole page."""


_SERVERS_OWN = {errno.EIO, errno.EREMOTEIO, errno.EBUSY}
"""Errors that stand for 500, 503 and similar responses, and for a disk that cannot be read."""


class _Meaning(NamedTuple):
    """Common meaning of exceptions with these names, and of their subclasses."""

    names: frozenset[str]
    kind: str
    text: str


def _meaning(names: str, kind: str, text: str) -> _Meaning:
    return _Meaning(frozenset(names.split()), kind, text)


_MEANINGS = (
    _meaning("AllStuck", "stuck", "no further request is made"),
    _meaning("AirflowNotFoundException", "connection", "the triggerer does not know the connection; define it there"),
    _meaning("PermissionError", "permission", "it may not be listed: check the credentials and their rights"),
    _meaning(
        "FileNotFoundError NotADirectoryError",
        "missing",
        "it does not exist, or is not a folder: check the address and the mount",
    ),
    _meaning("ImportError", "client", "the triggerer has no client for this kind of store"),
    _meaning("TimeoutError ConnectTimeoutError ReadTimeoutError", "slow", "it does not answer in time"),
    _meaning(
        "CutOffListing ResponseParserError ParseError ClientPayloadError IncompleteReadError",
        "cut off",
        "the listing was cut off, or is not what the store's protocol says",
    ),
    _meaning(
        "ConnectionError EndpointConnectionError ClientConnectorError ConnectionClosedError HTTPClientError",
        "unreachable",
        "it cannot be reached",
    ),
)
"""Matched by name, because the clients of stores are not loaded here; the first match counts."""


def trouble_of(error: Exception, source: Source) -> SourceTrouble:
    """Return what a failed listing means; the kind is stable while the cause is."""
    kind, text = _kind_and_text(error)
    if kind == "client" and source.scheme.startswith("s3"):
        text = f"{text}; pip install 'ptjob-provider[s3]'"
    said = " ".join(masked(str(error)).split())
    words = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return SourceTrouble(kind, f"{text} ({words if len(words) <= _LONGEST else f'{words[:_LONGEST]}…'})")


def _kind_and_text(error: Exception) -> tuple[str, str]:
    if isinstance(error, OSError) and error.errno in _SERVERS_OWN:
        return "server", "the store has a failure of its own"
    names = {cls.__name__ for cls in type(error).__mro__}
    for meaning in _MEANINGS:
        if names & meaning.names:
            return meaning.kind, meaning.text
    return type(error).__name__, "it cannot be listed"
