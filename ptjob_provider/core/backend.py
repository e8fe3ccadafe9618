"""Define the back-end port: the interface to the place where jobs run, with its contract for implementations.

One contract suite (`tests/contract`) runs against every back-end. A new method needs a reason in DECISIONS.md, "One
port with few verbs".
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
    from ptjob_provider.core.outputs.checkpoints import Checkpoint
    from ptjob_provider.core.outputs.contract import OutputReport, ResolvedOutput, ResolvedOutputs


@dataclass(frozen=True, kw_only=True)
class Observation:
    """Objects of one job at one moment, as wire dicts, without interpretation.

    Attributes:
        job: the job's object with its status; None if it was deleted, or replaced by an object with another uid.
        pods: its existing and recently deleted pods, with their `status.containerStatuses`.
        events: core/v1 Events about the job and its pods; empty where the back-end has none.
    """

    job: Manifest | None
    pods: Sequence[Manifest] = ()
    events: Sequence[Manifest] = ()


CURRENT = 120.0
"""Seconds since the last confirmation for which a view counts as current: a server confirms a watch about each minute,
with a bookmark."""


@dataclass(frozen=True, kw_only=True)
class View:
    """Age of the observations of a job, by a clock that does not follow the computer's time.

    Attributes:
        live: seconds for which they are known to have been current so far. It is counted from any start, and a back-end
            that opens its watches anew may begin at 0 again.
        age: seconds since they were last known to be current; infinite if they never were.
    """

    live: float
    age: float


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Metadata of a PersistentVolumeClaim at one moment, without its files.

    Attributes:
        uid: distinguishes the claim from a later claim of the same name.
        annotations: the claim's annotations.
    """

    uid: str
    annotations: Mapping[str, str]


class Backend(Protocol):
    """Interface to the place where jobs run. All methods are idempotent, and two processes may call them at once."""

    async def submit(
        self, manifest: Manifest, *, secret: Manifest | None = None, archive: IO[bytes] | None = None
    ) -> JobRef:
        """Create the job and, if its containers need one, a Secret that the job owns.

        Args:
            manifest: the job.
            secret: the Secret; None for none.
            archive: tar archive of the folder of the job's code, if it is too large for Secrets.

        Raises:
            PermissionDenied: the job or its Secret may not be created; nothing is left.
            JobAlreadyExists: the name is taken; nothing was created.
            InvalidSpec: the back-end rejects a field as invalid, or cannot bring the folder to the pods.
            UnsupportedByBackend: the back-end does not support a field that changes what runs.
            ClusterUnavailable: there was no answer; the job may or may not exist.
        """

    async def give_secret(self, ref: JobRef, secret: Manifest) -> None:
        """Create the Secret of an existing job if an interrupted create left it without one.

        Raises:
            PermissionDenied: the Secret may not be created.
        """

    async def ensure_tensorboard(self, ref: JobRef) -> str:
        """Create the TensorBoard that an existing job requests, and return its address; "" for none.

        For an ended job, delete the parts of its TensorBoard that would block the next job, or that nothing else would
        delete. Failures are logged and never raised; the job continues.
        """

    async def get(self, kind: str, namespace: str, name: str) -> Manifest:
        """Return the object with this name, including its status; the caller compares the uid.

        Raises:
            JobNotFound: no object has this name.
        """

    async def list(self, kind: str, namespace: str, labels: Mapping[str, str]) -> Sequence[Manifest]:
        """Return the objects that have all these labels, oldest first; of all namespaces if `namespace` is ""."""

    def watch(self, ref: JobRef) -> AsyncGenerator[Observation, None]:
        """Yield an observation of the job at once and after each change, until the caller closes the stream.

        A container's termination is in at least one observation, even if its pod is deleted a moment later. Ends after
        an observation whose job is None.
        """

    def view(self, ref: JobRef) -> View:
        """Return how current the observations of `watch` are; makes no request."""

    async def read(self, ref: JobRef) -> Observation:
        """Return the job and its pods as the server has them now, without any cache.

        The events are those that `watch` has reported so far. The job is None if it is gone, or has another uid.
        """

    async def reasons(self, ref: JobRef) -> Sequence[Manifest]:
        """Return core/v1 Events that explain why the job does not progress; none if `watch` reports all of them.

        This is for one-off reads; `watch` reports these events later, when the job had time to start. It takes a few
        requests and some seconds. A forbidden read is reported as an event with the reason `NotApplied`.
        """

    def logs(
        self, ref: JobRef, replica: str, *, since: LogCursor | None = None, follow: bool = True
    ) -> AsyncGenerator[LogLine, None]:
        """Yield the lines of one replica's training container after the cursor, each once, in order.

        With `follow`, wait for a replica that has not started, and end when the container is gone or will not run
        again. The lines of a restarted container follow with a higher restart count. Without `follow`, end at the last
        line that exists now.
        """

    async def patch(self, ref: JobRef, change: Manifest) -> None:
        """Apply a JSON merge patch (RFC 7386) to the object.

        Callers change annotations, `runPolicy.cleanPodPolicy` and `runPolicy.suspend`.

        Raises:
            JobNotFound: the object is gone, or has another uid.
            UnsupportedByBackend: the change suspends the job, which the back-end cannot.
        """

    async def delete(self, ref: JobRef, *, version: str | None = None) -> None:
        """Delete the job, but not its claims; if the job is gone or has another uid, do nothing.

        Returns once the deletion is certain; `pods_gone` says when nothing of the job runs any more.

        Args:
            ref: the job.
            version: delete the job only if this is still its `metadata.resourceVersion`; None for any.

        Raises:
            JobChanged: the job has another version; it was not deleted.
        """

    async def pods_gone(self, ref: JobRef) -> bool:
        """Return whether no container of the job with this uid runs any more."""

    async def inspect_outputs(
        self, ref: JobRef, outputs: ResolvedOutputs, *, since: datetime, curves: bool = False
    ) -> OutputReport:
        """Inspect the declared outputs in place, and return facts about them, without judging the facts.

        What was written before `since`, the creation of the task's first attempt, belongs to an earlier training. With
        `curves`, the report has the points of the scalars in addition to their last values.

        Raises:
            OutputsNotVerified: the outputs could not be inspected.
        """

    async def find_checkpoint(self, job: Manifest, folder: ResolvedOutput, *, since: datetime) -> Checkpoint:
        """Find the newest complete checkpoint in a folder, for a job that is not created yet.

        What was written before `since`, the creation of the task's first attempt, belongs to an earlier training.

        Raises:
            OutputsNotVerified: the folder could not be looked at; only then, never because nothing is in it.
        """

    async def usage(self, ref: JobRef) -> Mapping[str, PeakUsage]:
        """Return the usage measured so far, by replica name; makes no request.

        Called while the job is followed. Replicas without measurements are left out.
        """

    def watch_claim(self, namespace: str, name: str) -> AsyncGenerator[Claim | None, None]:
        """Yield the claim at once and after each change of its annotations, without end; None while it does not exist.

        Intermediate states may be skipped; the latest state is not.

        Raises:
            UnsupportedByBackend: claims have no annotations on this back-end.
        """
