"""Notices about lost log lines: the interval and the reason. Pure.

Only a rotated file shows that lines preceded it. For a run that is no longer readable it is unknown whether it wrote
any.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ptjob_provider.core import kinds
from ptjob_provider.core.logs import LogCursor, LogLine, nanoseconds

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kubernetes.podlog.runs import Run

_ROTATION = 3_000_000_000
"""Minimum nanoseconds between two rotations of one log."""

_STARTED_AGAIN = "its container had been started again"


def start_of_run(run: Run) -> LogCursor:
    """Return the cursor before a run's first line."""
    return _before_first(run.pod_uid, run.restart_count, run.started_at, run.container)


def start_of_pod(pod: Manifest, container: str = kinds.DEFAULT.CONTAINER) -> LogCursor:
    """Return the cursor before the first line of a pod's first run."""
    meta = pod["metadata"]
    return _before_first(meta["uid"], 0, pod["status"].get("startTime") or meta["creationTimestamp"], container)


def is_skipped(read: LogCursor, last: Run | None, oldest: Run) -> bool:
    """Return whether lines were written between the last line read and the oldest run that is kept.

    Args:
        read: cursor of that line.
        last: the last run that was read to its end; None for none.
        oldest: the oldest run that the node still has.
    """
    if last is not None and last.pod_uid == oldest.pod_uid:
        return oldest.restart_count > last.restart_count + 1
    if last is not None and last.pod_uid == read.pod_uid:
        return oldest.restart_count > 0
    if read.pod_uid == oldest.pod_uid:
        return oldest.restart_count > read.restart_count and oldest.began_after(read.timestamp)
    return True


def is_mislabelled(read: LogCursor, run: Run) -> bool:
    """Return True if the last line was reported for an earlier run although this one wrote it."""
    is_earlier = read.pod_uid == run.pod_uid and read.restart_count < run.restart_count
    return is_earlier and not run.began_after(read.timestamp)


def rotated(replica: str, place: LogCursor, until: str) -> LogLine:
    """Return the notice that lines after a cursor were rotated out, or may have been.

    If the file begins within three seconds of the cursor, no whole file lies between them: the kubelet rotates no
    sooner (`containerLogMonitorInterval`, at least 3 s). Its predecessor may have ended with the very line.

    Args:
        replica: the log's replica.
        place: cursor of the last line that was read.
        until: timestamp of the first existing line; or text that there is none.
    """
    return _gap(replica, place, until, "its log had been rotated", is_certain=not _is_soon(place.timestamp, until))


def skipped(replica: str, place: LogCursor, until: Run) -> LogLine:
    """Return the notice that lines after a cursor were removed before this run could be read."""
    is_same_pod = place.pod_uid == until.pod_uid
    return _gap(replica, place, until.started_at, _STARTED_AGAIN if is_same_pod else "its pod had been replaced")


def mislabelled(replica: str, place: LogCursor, run: Run, begin: LogCursor) -> LogLine:
    """Return the notice that the previous run may be unread: its last reported line belongs to this run.

    Args:
        replica: the log's replica.
        place: cursor of the line.
        run: the run that it belongs to.
        begin: the beginning of the pod's log.
    """
    said = _gap(replica, begin, run.started_at, _STARTED_AGAIN)
    return replace(said, cursor=replace(place, restart_count=run.restart_count))


def mistaken(replica: str, run: Run, until: str) -> LogLine:
    """Return the notice that a run was removed unread; lines reported as its own came later, from this instant on."""
    return _gap(replica, start_of_run(run), until, _STARTED_AGAIN)


def lost(replica: str, place: LogCursor, *, has_pod: bool) -> LogLine:
    """Return the notice that the end of a run is no longer readable."""
    why = "its log is not on its node any more" if has_pod else "its pod is gone"
    return _notice(f"{replica}: {why}; what it wrote after {place.timestamp}, if anything, was lost with it", place)


def belated(replica: str, place: LogCursor, before: str) -> LogLine:
    """Return the notice that a run's lines follow the beginning of the next one."""
    return _notice(f"{replica}: what follows was written before {before}, by the run before (told late)", place)


def _is_soon(timestamp: str, until: str) -> bool:
    return until[:1].isdigit() and nanoseconds(until) - nanoseconds(timestamp) < _ROTATION


def _gap(replica: str, place: LogCursor, until: str, why: str, *, is_certain: bool = False) -> LogLine:
    what = f"{replica}: what it wrote between {place.timestamp} and {until}" + ("" if is_certain else ", if anything,")
    return _notice(f"{what} was gone at the node before it could be read ({why})", place)


def _notice(text: str, place: LogCursor) -> LogLine:
    return LogLine(text=text, timestamp=place.timestamp, cursor=place, notice=True)


def _before_first(pod_uid: str, restart_count: int, timestamp: str, container: str) -> LogCursor:
    return LogCursor(
        pod_uid=pod_uid,
        container=container,
        restart_count=restart_count,
        timestamp=timestamp,
        ordinal=-1,
    )
