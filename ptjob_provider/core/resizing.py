"""Track the replica count of a followed job: elastic jobs are scaled by a person or an autoscaler."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ptjob_provider.core import kinds

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.submission import Submission


@dataclass(kw_only=True, slots=True)
class Size:
    """Last known size of a job.

    Attributes:
        generation: the object's generation when its replicas were counted; it grows with each change of the spec.
    """

    generation: int | None = None

    def of(self, job: Manifest, submission: Submission) -> Submission:
        """Return the submission with the job's current replicas; the same object if unchanged.

        Replicas are recounted only when the generation changes. If the object gives no count, nothing changes.
        """
        generation = job["metadata"].get("generation")
        if generation == self.generation:
            return submission
        self.generation = generation
        replicas = kinds.replicas(job)
        if not replicas:
            return submission
        ranks = {replica.name: replica.rank for replica in replicas}
        gpus_of = {replica.name: replica.gpus for replica in replicas}
        if ranks == submission.ranks and gpus_of == submission.gpus_of:
            return submission
        return replace(submission, ranks=ranks, gpus_of=gpus_of)
