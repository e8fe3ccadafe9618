"""Translates a store's exceptions to messages for the person who has to fix it."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, NamedTuple

from ptjob_provider.airflow.masking import masked
from ptjob_provider.core.arrival import SourceTrouble

if TYPE_CHECKING:
    from ptjob_provider.airflow.stores import Source

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
    _meaning("AllStuck", "stuck", "it is not asked"),
    _meaning("AirflowNotFoundException", "connection", "the triggerer does not know the connection; define it there"),
    _meaning("PermissionError", "permission", "it may not be listed: look at the credentials and what they allow"),
    _meaning(
        "FileNotFoundError NotADirectoryError",
        "missing",
        "it is not there, or is no folder: look at the address, and whether it is mounted",
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
