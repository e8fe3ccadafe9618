"""What an installation adds to every job that its users ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.manifest import KINDS
from ptjob_provider.core.spec.job import TrainingJob

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ptjob_provider.core.identity import Manifest

_OF_ONE_JOB = {
    *("name", "namespace", "kind", "workers", "nproc_per_node", "elastic_policy", "suspend"),
    *("command", "args", "working_dir", "code", "master", "worker"),
    *("model", "tfevents", "checkpoints", "tensorboard", "manifest"),
}


@dataclass(frozen=True, kw_only=True)
class Installation:
    """What is done to every job.

    Attributes:
        template: fields under those of each job: what the job says, typed or in its manifest, wins. None: nothing.
        change_pod: takes a pod, as a core/v1 Pod with the job's names and labels, and returns it as it is to be; it is
            called last, once for each role. None: nothing.
        sync_image: what fetches the code of jobs that name no image for it. "": this package's.
        tensorboard_image: what runs the TensorBoard of jobs that name no image for it. "": the job's own image.
    """

    template: TrainingJob | None = None
    change_pod: Callable[[Manifest], Manifest] | None = None
    sync_image: str = ""
    tensorboard_image: str = ""


def job_template(values: Mapping[str, Any], *, field: str) -> TrainingJob:
    """Read the fields of an installation's template.

    Raises:
        InvalidSpec: an unknown field, one that only one job can have, or a wrong value.
    """
    for name in values:
        if name in _OF_ONE_JOB:
            raise InvalidSpec.of(f"{field}.{name}", "set", "left to each job")
    kind, version = next(iter(KINDS.items()))  # with a manifest, however empty, no field is required
    try:
        return TrainingJob.parse(**values, manifest={"apiVersion": version, "kind": kind})
    except InvalidSpec as error:
        raise InvalidSpec(f"{field}.{error}") from None
