"""The back-end port: the interface to the place where jobs run, and its contract for implementors.

One contract suite (`tests/contract`) runs against every back-end. A new verb needs a reason in DECISIONS.md, "One port
with few verbs".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence
    from datetime import datetime

    from ptjob_provider.core.history.peak_usage import PeakUsage
    from ptjob_provider.core.identity import JobRef, Manifest
    from ptjob_provider.core.logs import LogCursor, LogLine
    from ptjob_provider.core.outputs.contract import OutputReport, ResolvedOutputs


@dataclass(frozen=True, kw_only=True)
class Observation:
    """One job's objects at one moment, as wire dicts, without interpretation.

    Attributes:
        job: the job's object with its status; None when it has been deleted, or replaced by one with another uid.
        pods: its existing and recently deleted pods, with their `status.containerStatuses`.
        events: core/v1 Events about the job and its pods; empty where the back-end has none.
    """

    job: Manifest | None
    pods: Sequence[Manifest] = ()
    events: Sequence[Manifest] = ()


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Metadata of a PersistentVolumeClaim at one moment, without its files.

    Attributes:
        uid: distinguishes it from a later claim of the same name.
        annotations: the claim's annotations.
    """

    uid: str
    annotations: Mapping[str, str]


class Backend(Protocol):
    """Interface to the place where jobs run. Every verb is idempotent and safe to call from two processes at once."""

    async def submit(
        self, manifest: Manifest, *, secret: Manifest | None = None, archive: IO[bytes] | None = None
    ) -> JobRef:
        """Create the job and the Secret that its containers need, owned by the job.

        Args:
            manifest: the job.
            secret: the Secret.
            archive: tar archive of the folder of the job's code, if it is too large for Secrets.

        Raises:
            PermissionDenied: the job or its Secret may not be created; nothing is left.
            JobAlreadyExists: the name is taken; nothing was created.
            InvalidSpec: the back-end rejects a field as wrong, or cannot bring the folder to the pods.
            UnsupportedByBackend: the back-end would have to ignore a field that changes what runs.
            ClusterUnavailable: no answer; the job may or may not exist.
        """

    async def give_secret(self, ref: JobRef, secret: Manifest) -> None:
        """Create the Secret of an existing job if an interrupted create left it without one.

        Raises:
            PermissionDenied: the Secret may not be created.
        """

    async def ensure_tensorboard(self, ref: JobRef) -> str:
        """Create the TensorBoard that an existing job requests, and return its address; "" for none.

        For an ended job, deletes what would block the next job and what nothing else would delete. Failures are logged
        and never raised; the job goes on.
        """

    async def get(self, kind: str, namespace: str, name: str) -> Manifest:
        """Return the object with this name and its status; the caller compares the uid.

        Raises:
            JobNotFound: no object has that name.
        """

    async def list(self, kind: str, namespace: str, labels: Mapping[str, str]) -> Sequence[Manifest]:
        """Return the objects with all these labels, oldest first; of all namespaces if `namespace` is ""."""

    def watch(self, ref: JobRef) -> AsyncGenerator[Observation, None]:
        """Yield an observation of the job at once, and again after each change until the caller closes the stream.

        A container's termination appears in at least one observation, even if its pod is deleted a moment later. Ends
        after an observation whose job is None.
        """

    async def reasons(self, ref: JobRef) -> Sequence[Manifest]:
        """Return core/v1 Events that explain why the job does not progress; empty where `watch` reports all of them.

        For one-off reads; watchers get these later, once the job had time to start. Takes a few requests and a few
        seconds. Reads that are forbidden are reported as an event `NotApplied`.
        """

    def logs(
        self, ref: JobRef, replica: str, *, since: LogCursor | None = None, follow: bool = True
    ) -> AsyncGenerator[LogLine, None]:
        """Yield the lines of one replica's training container after the cursor, each once, in order.

        Following waits for a replica that has not started, and ends when the container is gone or has ended for good. A
        restarted container continues under a higher restart count. Without `follow`, ends at the last line that exists
        now.
        """

    async def patch(self, ref: JobRef, change: Manifest) -> None:
        """Apply a JSON merge patch (RFC 7386) to the object.

        Callers change annotations, `runPolicy.cleanPodPolicy` and `runPolicy.suspend`.

        Raises:
            JobNotFound: the object is gone, or its uid differs.
        """

    async def delete(self, ref: JobRef) -> None:
        """Delete the job but not its claims; an absent job, or one with another uid, counts as success.

        Returns once the deletion is certain; `pods_gone` reports when nothing of the job runs any more.
        """

    async def pods_gone(self, ref: JobRef) -> bool:
        """Return whether no container of this job (this uid) runs any more."""

    async def inspect_outputs(
        self, ref: JobRef, outputs: ResolvedOutputs, *, since: datetime, curves: bool = False
    ) -> OutputReport:
        """Inspect the declared outputs in place and report the facts, without judging them.

        Scalars are read from event files modified at `since` or later; older ones belong to an earlier training.
        `curves` adds the points of the scalars to their last values.

        Raises:
            OutputsNotVerified: the outputs could not be inspected.
        """

    async def usage(self, ref: JobRef) -> Mapping[str, PeakUsage]:
        """Return the usage measured so far by replica name; makes no request.

        Called while the job is followed. Unmeasured replicas are left out.
        """

    def watch_claim(self, namespace: str, name: str) -> AsyncGenerator[Claim | None, None]:
        """Yield the claim at once and after each change of its annotations, without end; None while it does not exist.

        Intermediate states may be skipped; the last one is not.
        """
