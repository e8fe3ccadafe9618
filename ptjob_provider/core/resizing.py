"""How many replicas a job has while it is followed: an elastic one is scaled by a person, or by an autoscaler."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ptjob_provider.core import kinds

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.submission import Submission


@dataclass(kw_only=True, slots=True)
class Size:
    """What is known of a job's size.

    Attributes:
        generation: of the object when its replicas were counted; the server counts each change of what is wanted.
    """

    generation: int | None = None

    def of(self, job: Manifest, submission: Submission) -> Submission:
        """Return the submission with the replicas that the job has now, the same object if they are as before.

        Of a job of thousands they are counted seldom, and ten thousand who wait keep no second copy of them.

        Where the object does not say how many, it stays as it is.
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
