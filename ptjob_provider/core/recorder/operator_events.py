"""Pod creations, deletions and failures from the operator's events, which last an hour, even when the pods are gone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ptjob_provider.core.recorder.pods import event_time
from ptjob_provider.core.recorder.record import EARLIEST, ContainerKind, Termination

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ptjob_provider.core.identity import Manifest

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
