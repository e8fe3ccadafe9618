"""A stand-in for a cluster that takes pods away, and the effects of a process that may be killed at each of them."""

from __future__ import annotations

import copy
import math
from datetime import UTC, datetime, timedelta
from typing import IO, TYPE_CHECKING, Any

from fakes import MemoryStore, ScriptedBackend, finished
from ptjob_provider.core import kinds
from ptjob_provider.core.backend import Observation
from ptjob_provider.core.identity import attempt_of
from ptjob_provider.core.logs import LogCursor, LogLine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from ptjob_provider.core.identity import JobRef, Manifest

RAN = timedelta(seconds=60)
"""How long each job has run when it ends."""

EVICTED = {"reason": "Evicted", "message": "The node was low on resource: memory."}
OWN_LIMIT = {
    "reason": "Evicted",
    "message": "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi.",
}
PODS: dict[str, tuple[int, dict[str, str]]] = {
    "evicted": (137, EVICTED),
    "own limit": (137, OWN_LIMIT),
    "fails": (3, {}),
    "succeeds": (0, {}),
}
"""End of a job → exit code of its pod, and what the pod's status says besides."""


class PreemptingStandIn(ScriptedBackend):
    """Each job runs until it is watched for the first time; then it ends as `ends` says in turn.

    Attributes:
        ends: Keys of PODS; once there is none left, jobs succeed.
        together: Number of this owner's unfinished jobs after each create.
        attempts: Attempt of each job that was created.
        steps: Steps that rank 0 of each job writes, in turn; then a job writes none.
    """

    def __init__(self, *ends: str, steps: Sequence[Iterable[int]] = ()) -> None:
        super().__init__()
        self.ends = [*ends]
        self.steps = [*steps]
        self.together: list[int] = []
        self.attempts: list[int] = []
        self.pods: dict[str, Sequence[Manifest]] = {}

    async def submit(
        self, manifest: Manifest, *, secret: Manifest | None = None, archive: IO[bytes] | None = None
    ) -> JobRef:
        """Create the job, and count the jobs that run."""
        ref = await super().submit(manifest, secret=secret, archive=archive)
        self.attempts.append(attempt_of(manifest))
        self.together.append(len(self.running))
        texts = [f"step {step}/1000 loss: 0.5" for step in (self.steps.pop(0) if self.steps else ())]
        self.lines_of[f"{ref.name}-master-0"] = [_line(number, text, ref.uid) for number, text in enumerate(texts)]
        return ref

    @property
    def running(self) -> list[Manifest]:
        """The jobs that have not ended."""
        return [job for job in self.jobs.values() if not kinds.read_status(job).phase.is_terminal]

    async def watch(self, ref: JobRef) -> AsyncIterator[Observation]:
        """End the job, and show its end; a job that is gone is shown as gone."""
        self._refuse("watch")
        self.end_job(ref)
        yield await self.read(ref)
        await self._until_end()

    async def read(self, ref: JobRef) -> Observation:
        """Return the job with its pod."""
        if self.server is not None:
            return await super().read(ref)
        self._refuse("read")
        job = self.jobs.get((ref.namespace, ref.name))
        is_there = job is not None and job["metadata"]["uid"] == ref.uid
        return Observation(job=job if is_there else None, pods=self.pods.get(ref.uid, ()) if is_there else ())

    def end_job(self, ref: JobRef) -> None:
        """End the job with the next end, unless it has ended or is gone."""
        job = self.jobs.get((ref.namespace, ref.name))
        if job is None or job["metadata"]["uid"] != ref.uid or job not in self.running:
            return
        code, status = PODS[self.ends.pop(0) if self.ends else "succeeds"]
        ended_at = datetime.now(UTC).replace(microsecond=0)
        done = finished(job, "Failed" if code else "Succeeded")
        done["status"]["conditions"][0]["lastTransitionTime"] = done["status"]["completionTime"] = _text(ended_at)
        job["status"] = done["status"]
        self.pods[ref.uid] = [_pod(ref, code, ended_at, status)]


def _line(number: int, text: str, uid: str) -> LogLine:
    stamp = f"2026-11-20T10:{number // 60:02}:{number % 60:02}Z"
    cursor = LogCursor(pod_uid=f"pod of {uid}", container="pytorch", restart_count=0, timestamp=stamp, ordinal=number)
    return LogLine(text=text, timestamp=stamp, cursor=cursor)


def _pod(ref: JobRef, code: int, ended_at: datetime, status: dict[str, str]) -> Manifest:
    ended = {"exitCode": code, "startedAt": _text(ended_at - RAN), "finishedAt": _text(ended_at)}
    state = {"name": "pytorch", "restartCount": 0, "state": {"terminated": ended}}
    return {
        "metadata": {"name": f"{ref.name}-master-0", "uid": f"pod of {ref.uid}", "creationTimestamp": _text(ended_at)},
        "spec": {"nodeName": "node-1", "containers": [{"name": "pytorch"}], "restartPolicy": "Never"},
        "status": {"phase": "Failed" if code else "Succeeded", "containerStatuses": [state], **status},
    }


def _text(instant: datetime) -> str:
    return instant.isoformat().replace("+00:00", "Z")


class Killed(BaseException):
    """The process was killed; nothing of it runs any more."""


class Life:
    """The effects of one process, which ends before or after one of them.

    Args:
        effects: Number of effects that the process has before it is killed.
        is_done: The effect at which it is killed has happened.

    Attributes:
        had: Number of its effects so far.
    """

    def __init__(self, effects: float = math.inf, *, is_done: bool = False) -> None:
        self.left, self.is_done = effects, is_done
        self.had = 0

    def before(self) -> None:
        """Be killed instead of the next effect, or count it."""
        if self.left < 0 or (self.left == 0 and not self.is_done):
            self.left = -1
            raise Killed
        self.left -= 1
        self.had += 1

    def after(self) -> None:
        """Be killed after the effect."""
        if self.left < 0:
            raise Killed


_VERBS = ("submit", "delete", "patch", "get", "list", "read", "pods_gone")


class MortalBackend:
    """The back-end as a process sees it that may be killed at each request."""

    def __init__(self, backend: PreemptingStandIn, life: Life) -> None:
        self._backend, self._life = backend, life

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._backend, name)
        if name not in _VERBS:
            return attribute

        async def request(*args: Any, **kwargs: Any) -> Any:
            self._life.before()
            answer = await attribute(*args, **kwargs)
            self._life.after()
            return answer

        return request


class MortalStore(MemoryStore):
    """The attempt store as a process sees it that may be killed at each save; all processes share the record."""

    def __init__(self, shared: MemoryStore, life: Life) -> None:
        super().__init__()
        self._shared, self._life = shared, life

    def load(self) -> Any:
        return copy.deepcopy(self._shared.record)

    def save(self, record: Any) -> None:
        """Save the record as JSON has it."""
        self._life.before()
        self._shared.save(type(record).from_dict(record.to_dict()))
        self._life.after()
