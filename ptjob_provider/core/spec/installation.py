"""Settings of an installation that apply to every job of its users."""

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
    """Additions to every job.

    Attributes:
        template: fields under those of each job: the job's own, typed or in its manifest, override them. None: none.
        change_pod: takes a pod, as a core/v1 Pod with the job's names and labels, and returns the changed pod; called
            last, once for each role. None: no change.
        sync_image: image of the sync container for jobs without one. "": this package's.
        tensorboard_image: image of TensorBoard for jobs without one. "": the job's own image.
    """

    template: TrainingJob | None = None
    change_pod: Callable[[Manifest], Manifest] | None = None
    sync_image: str = ""
    tensorboard_image: str = ""


def job_template(values: Mapping[str, Any], *, field: str) -> TrainingJob:
    """Parse the fields of an installation's template.

    Raises:
        InvalidSpec: a field is unknown, specific to one job, or invalid.
    """
    for name in values:
        if name in _OF_ONE_JOB:
            raise InvalidSpec.of(f"{field}.{name}", "set", "left to each job")
    kind, version = next(iter(KINDS.items()))  # with a manifest, even an empty one, no field is required
    try:
        return TrainingJob.parse(**values, manifest={"apiVersion": version, "kind": kind})
    except InvalidSpec as error:
        raise InvalidSpec(f"{field}.{error}") from None
