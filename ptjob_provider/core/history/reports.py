"""Add the reports of controllers to the pod history: the operator's events and the job's own status."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from ptjob_provider.core.history.codec import bounded
from ptjob_provider.core.history.pod_history import EARLIEST, ContainerKind, Termination
from ptjob_provider.core.history.pods import event_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from ptjob_provider.core.history.pod_history import PodHistory
    from ptjob_provider.core.identity import Manifest


def told_key(replica: str) -> str:
    """Return the key of a reported end; an observed one replaces it."""
    return f"told/{replica}"


def with_end_told(record: PodHistory, end: Termination) -> PodHistory:
    """Return the record with the reported end of a replica whose failure was not observed."""
    if any(one.replica == end.replica and one.failed for one in record.terminations):
        return record
    return replace(record, terminations=(*record.terminations, replace(end, key=told_key(end.replica))))


def with_told(record: PodHistory, ends: Iterable[Termination], *, restarts: int, at: datetime) -> PodHistory:
    """Return the record with the failures and restarts that the job's own status reports.

    Args:
        record: the observed record; not changed.
        ends: failures of containers, one per replica; one without an instant gets `at`.
        restarts: reported restarts; the observed number is used if it is higher.
        at: the job's end, or the time of the observation before it.
    """
    for end in ends:
        record = with_end_told(record, replace(end, finished_at=end.finished_at or at))
    return bounded(replace(record, restarts_told=max(record.restarts_told, restarts)))


_END = re.compile(
    r"Error pod (?P<pod>\S+) container (?P<container>\S+) exitCode: (?P<code>\d+) terminated message: ?(?P<text>.*)",
    re.DOTALL,
)


def created_pods(events: Sequence[Manifest]) -> set[str]:
    """Return the pods that the operator reports to have created."""
    return _named(events, "SuccessfulCreatePod")


def deleted_pods(events: Sequence[Manifest]) -> set[str]:
    """Return the pods that the operator reports to have deleted."""
    return _named(events, "SuccessfulDeletePod")


def told_ends(events: Sequence[Manifest], training: str) -> Iterator[Termination]:
    """Yield the container failures that the operator reports; `training` names the training container."""
    for event in sorted(events, key=event_time):
        found = _END.match(event.get("message") or "") if event.get("reason") == "Error" else None
        if found is None:
            continue
        at = event_time(event)
        yield Termination(
            replica=found["pod"],
            container=found["container"],
            kind=ContainerKind.TRAINING if found["container"] == training else ContainerKind.SIDECAR,
            exit_code=int(found["code"]),
            message=found["text"].encode("utf-8", "replace").decode("utf-8"),
            finished_at=None if at == EARLIEST else at,
        )


def _named(events: Sequence[Manifest], reason: str) -> set[str]:
    return {str(event.get("message")).rpartition(" ")[2] for event in events if event.get("reason") == reason}
