"""Plan the TensorBoard of a job, its folder and image, from the specification and rank 0's pod."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.kinds import claims
from ptjob_provider.core.outputs import SCHEME, PvcAddress
from ptjob_provider.core.tensorboard import TensorBoardPlan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.outputs import ResolvedOutputs
    from ptjob_provider.core.spec import TrainingJob

_FIELD = "tensorboard.logdir"


def planned(
    job: TrainingJob, template: Mapping[str, Any], outputs: ResolvedOutputs, *, container: str, image: str
) -> TensorBoardPlan | None:
    """Return the job's TensorBoard; None if none is requested.

    Args:
        job: the specification.
        template: of rank 0.
        outputs: the job's; tfevents is the default folder.
        container: the name of the training container.
        image: the installation's; "" for the job's own.

    Raises:
        InvalidSpec: there is no folder to show, or it is on no claim.
    """
    asked = job.tensorboard
    if asked is None:
        return None
    if asked.logdir is not None:
        claim, path = _folder(asked.logdir, template, container)
    elif outputs.tfevents is not None:
        claim, path = outputs.tfevents.claim, outputs.tfevents.path
    else:
        raise InvalidSpec.of("tensorboard", "true", "set together with `tfevents` or `logdir`: a folder to show")
    found = TensorBoardPlan(claim=claim, path=path, image=asked.image or image)
    return found.served_as(asked.service_type) if asked.service_type else found


def _folder(text: str, template: Mapping[str, Any], container: str) -> tuple[str, str]:
    """Return the claim and the path on it; an address needs no mount, since TensorBoard's pod has its own."""
    if text.startswith(SCHEME):
        address = PvcAddress.parse(text, field=_FIELD, or_root=True)
        return address.claim, address.path
    found = claims.resolved(template, text, field=_FIELD, container=container, reads=True)
    return found.claim, found.path
