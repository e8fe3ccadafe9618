"""What a proxy may do to one request, one stream, or everything for a while: values, and nothing that happens."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Traffic(StrEnum):
    """What a request is to whoever sent it: one answer, or a stream that is read for long."""

    REQUEST = "request"
    WATCH = "watch"
    LOG = "log"


class Harm(StrEnum):
    """What happens to it."""

    RESET = "reset"
    """The connection is reset."""
    STALL = "stall"
    """Nothing comes any more, and the connection stays: half-open."""
    TRUNCATE = "truncate"
    """Half of what comes next is passed on, then the connection ends."""
    DELAY = "delay"
    """It comes late."""
    REFUSE = "refuse"
    """An answer with an error code; in an open watch, an event of type ERROR."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What happens to one request of one kind of traffic.

    Attributes:
        harm: what.
        traffic: to which kind.
        number: to which request of that kind, counted from 0.
        after: seconds for which a stream is passed on before; 0: it happens in the place of an answer.
        seconds: of a delay; in an open stream, of silence before it breaks, in which what comes is lost.
        code: of a refusal.
        retry_after: seconds that a refusal asks to be left alone.
        arrives: the server got the request, although nobody learns of it.
        clean: a truncated answer ends as if it were whole.
        page: a refusal is a gateway's page, not the server's Status.
    """

    harm: Harm
    traffic: Traffic
    number: int = 0
    after: float = 0.0
    seconds: float = 0.0
    code: int = 0
    retry_after: int | None = None
    arrives: bool = False
    clean: bool = False
    page: bool = False


@dataclass(frozen=True, kw_only=True)
class Outage:
    """A time in which nobody is there: all connections are reset at its beginning.

    Attributes:
        begins_after: seconds.
        seconds: how long.
        refuses: connections are refused; otherwise they are accepted and reset at the first request, which is counted.
    """

    begins_after: float
    seconds: float
    refuses: bool = False


@dataclass(frozen=True, kw_only=True)
class Refusals:
    """A time in which everything but a create is refused.

    Attributes:
        begins_after: seconds, from the job's creation on.
        seconds: how long.
        code: of the refusals.
        page: they are a gateway's page, not the server's Status.
        resets: all connections are reset at its beginning; otherwise what is open goes on.
    """

    begins_after: float
    seconds: float
    code: int
    page: bool = False
    resets: bool = False


@dataclass(frozen=True, kw_only=True)
class Lag:
    """A time in which a server answers whose cache is behind; all connections are reset before.

    Attributes:
        begins_after: seconds, from the job's creation on.
        seconds: how long; then it has caught up.
        forgets: it refuses the versions that clients know as expired, so that they list anew.
    """

    begins_after: float
    seconds: float
    forgets: bool = False


@dataclass(frozen=True, kw_only=True)
class Restore:
    """A moment from which the versions that clients know are too large, as after a restored backup of etcd.

    All connections are reset.

    Attributes:
        begins_after: seconds, from the job's creation on.
        seconds: how long; None: what is known stays too large until it is listed anew.
        drops: all versions are smaller from then on, those of objects as well.
        silent: a watch from a version that is too large is not refused; nothing comes, as from a real server.
    """

    begins_after: float
    seconds: float | None = None
    drops: bool = False
    silent: bool = False


@dataclass(frozen=True, kw_only=True)
class Revocation:
    """A time in which the account that follows the job has no rights: its RoleBinding is deleted, then made again.

    Attributes:
        begins_after: seconds, from the job's creation on.
        seconds: how long.
        resets: all connections are reset at its beginning: what is open stays open without rights.
    """

    begins_after: float
    seconds: float
    resets: bool = False
