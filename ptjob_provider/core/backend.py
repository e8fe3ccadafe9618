"""The port: where jobs run. What every back-end must keep, told to those who write one; it decides nothing.

One contract suite (`tests/contract`) runs against every back-end. A new verb needs a reason in DECISIONS.md,
"One port with few verbs".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence
    from datetime import datetime

    from ptjob_provider.core.identity import JobRef, Manifest
    from ptjob_provider.core.logs import LogCursor, LogLine
    from ptjob_provider.core.measured import Use
    from ptjob_provider.core.outputs import OutputReport, ResolvedOutputs


@dataclass(frozen=True, kw_only=True)
class Observation:
    """The world of one job at one moment, in the wire's words; never a verdict.

    Attributes:
        job: the job's object with its status; None when it has been deleted, or replaced by one with another uid.
        pods: its pods that exist or have just gone, with their `status.containerStatuses`.
        events: core/v1 Events about the job and its pods; empty where the back-end has none.
    """

    job: Manifest | None
    pods: Sequence[Manifest] = ()
    events: Sequence[Manifest] = ()


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim at one moment: what is written on it; what is written in it is nobody's business here.

    Attributes:
        uid: tells it from one of the same name that was made after it.
        annotations: what its writers have noted.
    """

    uid: str
    annotations: Mapping[str, str]


class Backend(Protocol):
    """Where jobs run. Every verb is safe to repeat, and safe to call from two processes at once."""

    async def submit(self, manifest: Manifest, *, secret: Manifest | None = None) -> JobRef:
        """Create the job, and the Secret that its containers ask for, which it owns; afterwards it exists and will run.

        Raises:
            PermissionDenied: the job or its Secret may not be created; nothing is left.
            JobAlreadyExists: the name is taken; nothing was created.
            InvalidSpec: the back-end refuses a field as wrong.
            UnsupportedByBackend: the back-end would have to ignore a field that changes what runs.
            ClusterUnavailable: no answer; the job may or may not exist.
        """

    async def give_secret(self, ref: JobRef, secret: Manifest) -> None:
        """Create the Secret of a job that is there, unless it has it: a create may have been cut short before.

        Raises:
            PermissionDenied: it may not be created.
        """

    async def ensure_tensorboard(self, ref: JobRef) -> str:
        """Have what a job that is there asks for beside it, a TensorBoard, and return its address; "" if it has none.

        Of a job that has ended, what would stand in the way of the next one goes, and what nobody else would end.
        Nothing that stands in the way of all this is an error: that is said, and the job goes on.
        """

    async def get(self, kind: str, namespace: str, name: str) -> Manifest:
        """Return the object that has this name now, with its status; the caller compares the uid.

        Raises:
            JobNotFound: there is none.
        """

    async def list(self, kind: str, namespace: str, labels: Mapping[str, str]) -> Sequence[Manifest]:
        """Return the objects that carry all these labels, oldest first; of all namespaces if `namespace` is ""."""

    def watch(self, ref: JobRef) -> AsyncGenerator[Observation, None]:
        """Yield the job's world at once, and again after each change until the caller stops asking.

        A container's termination is seen in at least one observation, even if its pod is gone a moment later.
        Ends after an observation whose job is None.
        """

    async def reasons(self, ref: JobRef) -> Sequence[Manifest]:
        """Return what is told now of why the job does not get on, as core/v1 Events; empty where `watch` tells it all.

        For whoever looks once: who watches is told later, when a job has had time to begin. A few questions and a few
        seconds; what may not be asked is told as an event `NotApplied`.
        """

    def logs(
        self, ref: JobRef, replica: str, *, since: LogCursor | None = None, follow: bool = True
    ) -> AsyncGenerator[LogLine, None]:
        """Yield the lines of one replica's training container that come after the cursor, each once, in order.

        Following ends when the container will write no more (it ended and is not restarted, or it is gone); a replica
        that has not started yet is waited for. A container that restarts goes on under a higher restart count. Without
        `follow` it ends at the last line that is there now.
        """

    async def patch(self, ref: JobRef, change: Manifest) -> None:
        """Merge the change (RFC 7386) into the object: annotations, `runPolicy.cleanPodPolicy`, `runPolicy.suspend`.

        Raises:
            JobNotFound: it is gone, or its uid differs.
        """

    async def delete(self, ref: JobRef) -> None:
        """Stop the job and remove it, never its claims; absent, or of another uid, is success.

        Returns once the deletion is certain to happen; `pods_gone` tells when nothing of it runs any more.
        """

    async def pods_gone(self, ref: JobRef) -> bool:
        """Whether no container of this job (this uid) runs any more."""

    async def inspect_outputs(
        self, ref: JobRef, outputs: ResolvedOutputs, *, since: datetime, curves: bool = False
    ) -> OutputReport:
        """Look at the declared outputs where they are, and say what is there; what it means is not decided here.

        Scalars are read from event files that were modified at `since` or later; older ones are an earlier training's.
        With `curves`, the points of scalars are told as well as their last values.

        Raises:
            OutputsNotVerified: they could not be looked at.
        """

    async def usage(self, ref: JobRef) -> Mapping[str, Use]:
        """Return what the job's replicas were measured to use so far, by their names; it asks nobody.

        It is asked while the job is followed. Replicas that nobody has measured are left out.
        """

    def watch_claim(self, namespace: str, name: str) -> AsyncGenerator[Claim | None, None]:
        """Yield the claim at once, and again after each change of its annotations, without end; None while it is gone.

        States that follow each other faster than they are taken may be passed over; the last one is not.
        """
