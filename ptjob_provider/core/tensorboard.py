"""The TensorBoard beside a job, as it is written on the job: what it shows, how it is run, where it is reached.

Pure. Whoever holds the job's object knows all of it; what runs it is made of `kubernetes.tensorboard_objects`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from ptjob_provider.core.identity import TENSORBOARD_ANNOTATION
from ptjob_provider.core.versions import known_fields

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class TensorBoardPlan:
    """One job's TensorBoard.

    Attributes:
        claim: that has the events.
        path: of their folder on it; "" is the claim's root.
        image: what runs it; "" is the job's own.
        service_type: `NodePort` or `ClusterIP`.
        url: where it is reached; "" as long as there is none.
    """

    claim: str
    path: str
    image: str = ""
    service_type: str = "NodePort"
    url: str = ""

    @classmethod
    def of(cls, job: Mapping[str, Any]) -> Self | None:
        """Return what a job's object tells; None if it asks for none, or somebody has changed it beyond reading."""
        text = (job["metadata"].get("annotations") or {}).get(TENSORBOARD_ANNOTATION)
        try:
            return cls(**known_fields(cls, json.loads(text))) if text else None
        except (ValueError, TypeError, AttributeError):
            return None

    @property
    def annotation(self) -> dict[str, str]:
        """How it is written on the job."""
        return {TENSORBOARD_ANNOTATION: json.dumps(asdict(self))}

    def served_as(self, service_type: str) -> Self:
        """Return it for others to reach."""
        return replace(self, service_type=service_type)

    def run_by(self, image: str) -> Self:
        """Return it with another image."""
        return replace(self, image=image)

    def served_at(self, url: str) -> Self:
        """Return it as it is reached."""
        return replace(self, url=url)


def url_of(job: Mapping[str, Any]) -> str:
    """Return where a job's TensorBoard is reached; "" if there is none."""
    plan = TensorBoardPlan.of(job)
    return plan.url if plan else ""
