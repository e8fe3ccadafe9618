"""Read and write the plan of a job's TensorBoard: the events, the image, the address; it is an annotation on the job.

Pure. `kubernetes.tensorboard.objects` renders the TensorBoard's objects from the plan.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from ptjob_provider.core.identity import TENSORBOARD_ANNOTATION, annotation_of
from ptjob_provider.core.versions import known_fields, read_object

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class TensorBoardPlan:
    """Plan of one job's TensorBoard.

    Attributes:
        claim: the claim with the events.
        path: path of the events' folder on the claim; "" for the claim's root.
        image: image of TensorBoard; "" for the job's image.
        service_type: `NodePort` or `ClusterIP`.
        url: address of TensorBoard; "" as long as there is none.
    """

    claim: str
    path: str
    image: str = ""
    service_type: str = "NodePort"
    url: str = ""

    @classmethod
    def of(cls, job: Mapping[str, Any]) -> Self | None:
        """Return the plan that is annotated on a job; None if the annotation is missing or unreadable."""
        try:
            return cls(**known_fields(cls, read_object(annotation_of(job, TENSORBOARD_ANNOTATION))))
        except TypeError:
            return None

    @property
    def annotation(self) -> dict[str, str]:
        """Return the annotation with this plan."""
        return {TENSORBOARD_ANNOTATION: json.dumps(asdict(self))}


def url_of(job: Mapping[str, Any]) -> str:
    """Return the address of a job's TensorBoard; "" if there is none."""
    plan = TensorBoardPlan.of(job)
    return plan.url if plan else ""
