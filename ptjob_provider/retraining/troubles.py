"""Describe failed listings of a source for the person who has to fix it, and decide when to retry them."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from ptjob_provider.airflow.masking import masked

if TYPE_CHECKING:
    from ptjob_provider.retraining.sources import Source

LONGEST_PAUSE = 900.0
"""Maximum seconds between two attempts to list a failing source, before the jitter."""

SHORTEST_PAUSE = 5.0


class SourceTrouble(Exception):
    """Error of a failed listing of the source.

    Args:
        kind: identifies the problem; each kind is reported once.
        text: description of the problem, with a remedy if known.
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


_SERVER_ERRORS = {errno.EIO, errno.EREMOTEIO, errno.EBUSY}
"""Error numbers of 500, 503 and similar responses, and of a disk that cannot be read."""


_MEANINGS = (
    ("AllStuck", "stuck", "no further request is made"),
    ("AirflowNotFoundException", "connection", "the triggerer does not know the connection; define it there"),
    ("PermissionError", "permission", "it may not be listed: check the credentials and their rights"),
    (
        "FileNotFoundError NotADirectoryError",
        "missing",
        "it does not exist, or is not a folder: check the address and the mount",
    ),
    ("ImportError", "client", "the triggerer has no client for this kind of store"),
    ("TimeoutError ConnectTimeoutError ReadTimeoutError", "slow", "it does not answer in time"),
    (
        "CutOffListing ResponseParserError ParseError ClientPayloadError IncompleteReadError",
        "cut off",
        "the listing was cut off, or is not what the store's protocol says",
    ),
    (
        "ConnectionError EndpointConnectionError ClientConnectorError ConnectionClosedError HTTPClientError",
        "unreachable",
        "it cannot be reached",
    ),
)
"""Exceptions, or bases of them, with the kind of trouble that they mean and its text; the first match counts.

They are matched by name, because no store's client is imported.
"""


def trouble_of(error: Exception, source: Source) -> SourceTrouble:
    """Return the trouble that a failed listing means; the kind stays the same while the cause does."""
    kind, text = _kind_and_text(error)
    if kind == "client" and source.scheme.startswith("s3"):
        text = f"{text}; pip install 'ptjob-provider[s3]'"
    message = " ".join(masked(str(error)).split())
    detail = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return SourceTrouble(kind, f"{text} ({detail if len(detail) <= _LONGEST else f'{detail[:_LONGEST]}…'})")


def _kind_and_text(error: Exception) -> tuple[str, str]:
    if isinstance(error, OSError) and error.errno in _SERVER_ERRORS:
        return "server", "the store has a failure of its own"
    names = {cls.__name__ for cls in type(error).__mro__}
    for meant, kind, text in _MEANINGS:
        if names & set(meant.split()):
            return kind, text
    return type(error).__name__, "it cannot be listed"
