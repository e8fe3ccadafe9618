"""Faults as plain values: faults of one request or stream, and faults of the whole server for a period."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Traffic(StrEnum):
    """Kind of a request: a single response, or a stream that stays open."""

    REQUEST = "request"
    WATCH = "watch"
    LOG = "log"


class Harm(StrEnum):
    """Effect of a fault."""

    RESET = "reset"
    """The connection is reset."""
    STALL = "stall"
    """No more data arrives, and the connection stays half-open."""
    TRUNCATE = "truncate"
    """The proxy forwards half of the next data, then closes the connection."""
    DELAY = "delay"
    """The response is late."""
    REFUSE = "refuse"
    """The response has an error code; in an open watch, an event of type ERROR."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Fault of one request of one kind of traffic.

    Attributes:
        harm: effect on the request.
        traffic: kind of the request.
        number: index of the request among those of its kind, from 0.
        after: seconds for which a stream is forwarded before the fault; 0: the fault replaces the response.
        seconds: length of a delay; in an open stream, of the silence before it breaks, in which data is lost.
        code: status code of a refusal.
        retry_after: value of the refusal's Retry-After header, in seconds.
        arrives: the server gets the request, although the client gets no response from it.
        clean: a truncated response ends as if it were complete.
        page: a refusal is a gateway's page instead of the server's Status.
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
    """Period without a server; all connections are reset when it begins.

    Attributes:
        begins_after: seconds until it begins.
        seconds: length of the period.
        refuses: connections are refused; otherwise they are accepted and reset at the first request, which is counted.
    """

    begins_after: float
    seconds: float
    refuses: bool = False


@dataclass(frozen=True, kw_only=True)
class Refusals:
    """Period in which all requests except creates are refused.

    Attributes:
        begins_after: seconds from the job's creation until it begins.
        seconds: length of the period.
        code: status code of the refusals.
        page: the refusals are a gateway's page instead of the server's Status.
        resets: all connections are reset when it begins; otherwise open connections continue.
    """

    begins_after: float
    seconds: float
    code: int
    page: bool = False
    resets: bool = False


@dataclass(frozen=True, kw_only=True)
class Lag:
    """Period in which the server's cache is stale; all connections are reset when it begins.

    Attributes:
        begins_after: seconds from the job's creation until it begins.
        seconds: length of the period; then the cache has caught up.
        forgets: the server refuses the versions that clients hold as expired, so that they list again.
    """

    begins_after: float
    seconds: float
    forgets: bool = False


@dataclass(frozen=True, kw_only=True)
class Restore:
    """Moment from which the versions that clients hold are too large, as after restoring a backup of etcd.

    All connections are reset.

    Attributes:
        begins_after: seconds from the job's creation until it begins.
        seconds: length of the period; None: the clients' versions stay too large until they list again.
        drops: all versions are smaller from then on, also those of objects.
        silent: a watch from a version that is too large stays open and sends nothing, as on a real server.
    """

    begins_after: float
    seconds: float | None = None
    drops: bool = False
    silent: bool = False


@dataclass(frozen=True, kw_only=True)
class Revocation:
    """Period in which the account that follows the job has no rights: its RoleBinding is deleted and recreated.

    Attributes:
        begins_after: seconds from the job's creation until it begins.
        seconds: length of the period.
        resets: all connections are reset when it begins; an open connection would otherwise stay open.
    """

    begins_after: float
    seconds: float
    resets: bool = False


@dataclass(frozen=True, kw_only=True)
class Blindness:
    """Period in which watches are opened in vain while all other requests pass.

    All connections are reset when it begins.

    Attributes:
        begins_after: seconds from the job's creation until it begins.
        seconds: length of the period.
        resources: plurals of the resources that cannot be watched.
        code: status code of the refusals; 0: the watch is opened, and nothing arrives.
        retry_after: value of the refusal's Retry-After header, in seconds.
    """

    begins_after: float
    seconds: float
    resources: tuple[str, ...]
    code: int = 0
    retry_after: int | None = None
