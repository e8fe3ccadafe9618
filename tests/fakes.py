"""Stand-ins for behavior that a real back-end cannot produce on demand; their names say that they are stand-ins."""

from __future__ import annotations

import asyncio
import copy
from typing import IO, TYPE_CHECKING, Any

from ptjob_provider.core.backend import Observation, View
from ptjob_provider.core.errors import (
    ClusterError,
    ClusterUnavailable,
    JobAlreadyExists,
    JobChanged,
    JobNotFound,
    KindNotServed,
)
from ptjob_provider.core.identity import OWNER_ANNOTATION, JobRef, Manifest, owner_annotation
from ptjob_provider.core.kinds import KINDS
from ptjob_provider.core.outputs.checkpoints import Checkpoint
from ptjob_provider.core.outputs.contract import OutputReport, ResolvedOutputs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from datetime import datetime

    from ptjob_provider.core.history.peak_usage import PeakUsage
    from ptjob_provider.core.identity import Owner
    from ptjob_provider.core.logs import LogCursor, LogLine
    from ptjob_provider.core.outputs.contract import ResolvedOutput
    from ptjob_provider.core.run.attempts import AttemptRecord


class ScriptedBackend:
    """Back-end in memory that follows a script: it can lose responses, keep pods, show observations and hold back logs.

    Attributes:
        submits: Result of each create in turn: "ok" (the default), "lost" (created, no response), "refused", an error.
        served: Kinds that it serves.
        kinds_read: Kind of each job that was read, in order.
        pods_stay: Number of times that `pods_gone` returns False after a delete.
        worlds: Observations that `watch` yields in turn; then it waits forever.
        seconds_to_first_world: Delay before the first observation.
        lines: Lines of rank 0; the log ends after them unless `log_hangs`.
        lines_of: Lines of other replicas; a replica that is not in it has the lines of rank 0.
        seconds_between_lines: Delay between lines.
        reason_events: Events that say why the job waits.
        uses: Measured peak usage of the replicas.
        report: Report on the declared outputs, or the error that the inspection raises.
        checkpoint: What is found below the folder of checkpoints.
        looks: Hand-over of each look for a checkpoint: job, folder, and since when.
        refusals: Errors of the next requests, by verb; `list KIND` for one kind.
        server: What the server has, if the watch does not show it; a read never ends with "silent".
        versions: The versions that the server demanded of deletions.
        changes: Number of deletions before which the job changes on the server.
    """

    def __init__(self) -> None:
        self.served = set(KINDS)
        self.kinds_read: list[str] = []
        self.jobs: dict[tuple[str, str], Manifest] = {}
        self.submits: list[Any] = []
        self.pods_stay = 0
        self.worlds: list[Observation] = []
        self.seconds_to_first_world = 0.0
        self.lines: list[LogLine] = []
        self.lines_of: dict[str, list[LogLine]] = {}
        self.seconds_between_lines = 0.0
        self.log_error: ClusterError | None = None
        self.get_error: ClusterError | None = None
        self.log_hangs = False
        self.report: OutputReport | Exception = OutputReport(model=None, tfevents=None)
        self.checkpoint = Checkpoint()
        self.looks: list[tuple[Manifest, ResolvedOutput, datetime]] = []
        self.refusals: dict[str, list[Exception]] = {}
        self.reason_events: list[Manifest] = []
        self.asked_why = 0
        self.uses: dict[str, PeakUsage] = {}
        self.patch_error: ClusterError | None = None
        self.patches: list[Manifest] = []
        self.secrets: dict[str, Manifest] = {}
        self.tensorboard_url = ""
        self.tensorboards_ensured: list[JobRef] = []
        self.deleted: list[JobRef] = []
        self.created = 0
        self.shown = 0
        self.waiting: list[asyncio.Event] = []
        self.server: Observation | str | None = None
        self.versions: list[str | None] = []
        self.changes = 0
        self.reads = 0

    async def submit(
        self, manifest: Manifest, *, secret: Manifest | None = None, archive: IO[bytes] | None = None
    ) -> JobRef:
        """Create with the next result of the script; a lost response is lost before the Secret is created."""
        if manifest["kind"] not in self.served:
            raise KindNotServed(f"kind: {manifest['kind']} is not served")
        what = self.submits.pop(0) if self.submits else "ok"
        meta = manifest["metadata"]
        key = (meta["namespace"], meta["name"])
        if isinstance(what, Exception):
            raise what
        if what == "refused":
            raise ClusterUnavailable("no answer")
        if key in self.jobs:
            raise JobAlreadyExists("taken", code=409)
        self.created += 1
        job = copy.deepcopy(manifest)
        job["metadata"] |= {"uid": f"uid-{self.created}", "creationTimestamp": f"2026-11-20T10:00:{self.created:02d}Z"}
        self.jobs[key] = job
        if what == "lost":
            raise ClusterUnavailable("no answer")
        if secret is not None:
            await self.give_secret(JobRef.of(job), secret)
        return JobRef.of(job)

    async def give_secret(self, ref: JobRef, secret: Manifest) -> None:
        """Keep the Secret."""
        self._refuse("give_secret")
        self.secrets[ref.name] = secret

    async def ensure_tensorboard(self, ref: JobRef) -> str:
        """Record the call and return the script's URL."""
        self.tensorboards_ensured.append(ref)
        return self.tensorboard_url

    async def get(self, kind: str, namespace: str, name: str) -> Manifest:
        """Return the object or raise JobNotFound."""
        self.kinds_read.append(kind)
        self._refuse("get")
        if self.get_error:
            raise self.get_error
        found = self.jobs.get((namespace, name))
        if found is None or kind not in {"", found.get("kind", kind)}:
            raise JobNotFound(f"{kind} {namespace}/{name} not found", code=404)
        return found

    async def list(self, kind: str, namespace: str, labels: Mapping[str, str]) -> Sequence[Manifest]:
        """Return all jobs of the namespace with the labels."""
        self._refuse("list")
        self._refuse(f"list {kind}")
        wanted = labels.items()
        return [
            job
            for (ns, _), job in self.jobs.items()
            if (ns, job.get("kind")) == (namespace, kind) and wanted <= job["metadata"]["labels"].items()
        ]

    async def watch(self, ref: JobRef) -> AsyncIterator[Observation]:
        """Yield the scripted observations, then nothing more; a later call yields the last one at once."""
        self._refuse("watch")
        await asyncio.sleep(self.seconds_to_first_world)
        for world in self.worlds[self.shown :] or self.worlds[-1:]:
            self.shown += 1
            yield world
            await asyncio.sleep(0)
        await self._until_end()
        yield self.worlds[-1]
        await asyncio.Event().wait()

    def view(self, ref: JobRef) -> View:
        """Return that the watch is current."""
        return View(live=asyncio.get_running_loop().time(), age=0.0)

    async def read(self, ref: JobRef) -> Observation:
        """Return what the server has: the last observation of the watch, or a stored job without pods."""
        self.reads += 1
        self._refuse("read")
        if self.server == "silent":
            await asyncio.Event().wait()
        if self.server is not None:
            return self.server
        if self.worlds:
            return self.worlds[-1]
        found = self.jobs.get((ref.namespace, ref.name))
        return Observation(job=found if found is not None and found["metadata"]["uid"] == ref.uid else None)

    async def reasons(self, ref: JobRef) -> Sequence[Manifest]:
        """Return the script's events, and count the calls."""
        self._refuse("reasons")
        self.asked_why += 1
        return self.reason_events

    async def logs(
        self, ref: JobRef, replica: str, *, since: LogCursor | None = None, follow: bool = True
    ) -> AsyncIterator[LogLine]:
        """Yield the scripted lines after the cursor."""
        self._refuse("logs")
        if self.log_error:
            raise self.log_error
        for line in self.lines_of.get(replica, self.lines):
            if since is None or line.cursor.ordinal > since.ordinal:
                await asyncio.sleep(self.seconds_between_lines)
                yield line
        if follow and self.log_hangs:
            await self._until_end()

    def end(self, world: Observation) -> None:
        """Show this observation to all watches, and end the logs that hang."""
        self.worlds = [world]
        for waiting in self.waiting:
            waiting.set()

    def _refuse(self, verb: str) -> None:
        if errors := self.refusals.get(verb):
            raise errors.pop(0)

    async def _until_end(self) -> None:
        self.waiting.append(asyncio.Event())
        await self.waiting[-1].wait()

    async def patch(self, ref: JobRef, change: Manifest) -> None:
        """Record the change; only annotations are changed."""
        self._refuse("patch")
        if self.patch_error:
            raise self.patch_error
        self.patches.append(change)
        job = self.jobs.get((ref.namespace, ref.name))
        if job is not None:
            texts = {**job["metadata"].get("annotations", {}), **change.get("metadata", {}).get("annotations", {})}
            job["metadata"]["annotations"] = {key: text for key, text in texts.items() if text is not None}

    async def delete(self, ref: JobRef, *, version: str | None = None) -> None:
        """Delete the job if it has this uid."""
        self._refuse("delete")
        self.versions.append(version)
        if version is not None and self.changes:
            self.changes -= 1
            raise JobChanged("the object has been modified", code=409)
        self.deleted.append(ref)
        key = (ref.namespace, ref.name)
        if key in self.jobs and self.jobs[key]["metadata"]["uid"] == ref.uid:
            del self.jobs[key]

    async def pods_gone(self, ref: JobRef) -> bool:
        """Return False as often as the script says."""
        self._refuse("pods_gone")
        self.pods_stay -= 1
        return self.pods_stay < 0

    async def usage(self, ref: JobRef) -> Mapping[str, PeakUsage]:
        return self.uses

    async def inspect_outputs(
        self, ref: JobRef, outputs: ResolvedOutputs, *, since: datetime, curves: bool = False
    ) -> OutputReport:
        """Return or raise the script's report."""
        if isinstance(self.report, Exception):
            raise self.report
        return self.report

    async def find_checkpoint(self, job: Manifest, folder: ResolvedOutput, *, since: datetime) -> Checkpoint:
        """Return the script's checkpoint, and record what was asked."""
        self.looks.append((job, folder, since))
        self._refuse("find_checkpoint")
        return self.checkpoint


class BackendWithTakenNames(ScriptedBackend):
    """The first names are taken by another owner's jobs, as after a hash collision."""

    def __init__(self, whose: Owner, taken: int) -> None:
        super().__init__()
        self.whose = whose
        self.taken = taken

    async def submit(
        self, manifest: Manifest, *, secret: Manifest | None = None, archive: IO[bytes] | None = None
    ) -> JobRef:
        """Create the other owner's job first, while there are names left to take."""
        if self.taken:
            self.taken -= 1
            theirs = {OWNER_ANNOTATION: owner_annotation(self.whose, 1)}
            await super().submit({**manifest, "metadata": {**manifest["metadata"], "annotations": theirs}})
        return await super().submit(manifest, secret=secret, archive=archive)


class MemoryStore:
    """An attempt store in memory."""

    def __init__(self, record: AttemptRecord | None = None) -> None:
        self.record = record
        self.history: list[AttemptRecord] = []

    def load(self) -> AttemptRecord | None:
        return self.record

    def save(self, record: AttemptRecord) -> None:
        """Save the record and keep the history of saves."""
        self.record = record
        self.history.append(record)


class ListSink:
    """Collects the lines and notices of a task's log."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.notices: list[str] = []

    def line(self, line: LogLine) -> None:
        self.lines.append(line.text)

    def notice(self, text: str) -> None:
        self.notices.append(text)

    async def room(self) -> None:
        """Accept any number of lines."""


def finished(job: Manifest, condition: str = "Succeeded") -> dict[str, Any]:
    """Return the job as it is after it has ended."""
    done = {
        "type": condition,
        "status": "True",
        "reason": "R",
        "message": "m",
        "lastTransitionTime": "2026-11-20T10:05:00Z",
    }
    return job | {"status": {"conditions": [done], "completionTime": "2026-11-20T10:05:00Z"}}
