"""Define the causes of failure, with the advice for each and whether a retry may help, and the diagnosis of a job."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

from ptjob_provider.core.identity import DIAGNOSIS_ANNOTATION, annotation_of
from ptjob_provider.core.versions import MALFORMED, known_fields, read_object

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from ptjob_provider.core.identity import JobRef

TAIL_LINES = 40
TAIL_BYTES = 4096
_LISTS = ("collateral", "unstarted", "also_failed", "log_tail")


class Cause(StrEnum):
    """Stable codes of causes, for programs; the texts about a cause may change."""

    PYTHON_EXCEPTION = "python_exception"
    EXIT_CODE = "exit_code"
    PROGRAM_MISSING = "program_missing"
    OUT_OF_MEMORY = "out_of_memory"
    GPU_OUT_OF_MEMORY = "gpu_out_of_memory"
    SHARED_MEMORY = "shared_memory"
    DISK_FULL = "disk_full"
    CRASHED = "crashed"
    CRASH_LOOP = "crash_loop"
    BACKOFF_LIMIT = "backoff_limit"
    KILLED = "killed"
    TERMINATED = "terminated"
    EVICTED = "evicted"
    PREEMPTED = "preempted"
    NODE_LOST = "node_lost"
    CONNECTION_LOST = "connection_lost"
    SUPERVISOR_LOST = "supervisor_lost"
    CANNOT_START = "cannot_start"
    IMAGE = "image"
    CONFIG = "config"
    MOUNT = "mount"
    CODE = "code"
    INIT = "init"
    START_TIMEOUT = "start_timeout"
    UNSCHEDULABLE = "unschedulable"
    QUOTA = "quota"
    FORBIDDEN = "forbidden"
    QUEUED = "queued"
    SIDECAR = "sidecar"
    DEADLINE = "deadline"
    TIMED_OUT = "timed_out"
    DELETED = "deleted"
    OUTPUTS = "outputs"
    NO_PROGRESS = "no_progress"
    UNKNOWN = "unknown"


RESUMES = "a retry goes on from the last checkpoint if the code loads one"
_SAME = "a retry would fail the same way"
_RENAMED = " or correct its name"
_CREATED = " (the job then goes on by itself), or submit it again with the right name"
_MORE_TIME = "Give it more time (active_deadline_seconds, --running-timeout)"


@dataclass(frozen=True)
class CauseInfo:
    """Facts about a cause.

    Attributes:
        advice: what to do next, unless the failure itself shows more.
        retryable: whether a retry may help, unless the failure itself shows more.
        passes: whether a cause that is worth a retry passes by itself; see `Diagnosis.passes`.
        by_platform: whether the platform took the pod away, where a retry may help; see `Diagnosis.by_platform`.
        of_whole_job: the replica in such a diagnosis did not fail first, it only has the last lines.
        in_brief: its name in a list of jobs, where the code does not explain itself; "" for the code.
        verb: what the job did.
    """

    advice: str
    retryable: bool
    passes: bool = True
    by_platform: bool = False
    of_whole_job: bool = False
    in_brief: str = ""
    verb: str = "failed"


CAUSES: Mapping[Cause, CauseInfo] = {
    Cause.PYTHON_EXCEPTION: CauseInfo(
        "Look at the exception and where it was raised",
        retryable=True,
        passes=False,
    ),
    Cause.EXIT_CODE: CauseInfo(
        "See its log",
        retryable=True,
        passes=False,
    ),
    Cause.PROGRAM_MISSING: CauseInfo(
        f"Correct the command or the image; {_SAME}",
        retryable=False,
        in_brief="program not found",
    ),
    Cause.OUT_OF_MEMORY: CauseInfo(
        f"Raise the memory limit or use less (batch size, data loader workers); {_SAME}",
        retryable=False,
    ),
    Cause.GPU_OUT_OF_MEMORY: CauseInfo(
        f"Make the batch or the model smaller, or ask for larger GPUs; {_SAME}",
        retryable=False,
    ),
    Cause.SHARED_MEMORY: CauseInfo(
        f"Raise the shared memory (/dev/shm) or use fewer data loader workers; {_SAME}",
        retryable=False,
        in_brief="out of shared memory",
    ),
    Cause.DISK_FULL: CauseInfo(
        "The volume that it writes to is full, or its quota: free or enlarge it "
        f"(ptjob data ls shows a claim's files); {RESUMES}",
        retryable=True,
        passes=False,
    ),
    Cause.CRASHED: CauseInfo(
        "Look for a native library that does not fit the image or the GPU",
        retryable=True,
        passes=False,
    ),
    Cause.CRASH_LOOP: CauseInfo(
        "Look at the program; restarting it did not help so far",
        retryable=True,
        passes=False,
    ),
    Cause.BACKOFF_LIMIT: CauseInfo(
        "See the log; restarting it did not help so far",
        retryable=True,
        passes=False,
    ),
    Cause.KILLED: CauseInfo(
        f"See whether the node ran out of memory or somebody killed it; {RESUMES}",
        retryable=True,
    ),
    Cause.TERMINATED: CauseInfo(
        f"Something outside the job stopped it; {RESUMES}",
        retryable=True,
        in_brief="stopped",
    ),
    Cause.EVICTED: CauseInfo(
        f"The node had to be freed, the code is not at fault; {RESUMES}",
        retryable=True,
        by_platform=True,
    ),
    Cause.PREEMPTED: CauseInfo(
        f"Raise its priority if that must not happen; {RESUMES}",
        retryable=True,
        by_platform=True,
    ),
    Cause.NODE_LOST: CauseInfo(
        f"The node, not the code, is at fault; {RESUMES}",
        retryable=True,
        by_platform=True,
    ),
    Cause.CONNECTION_LOST: CauseInfo(
        f"No replica says why; look at the network and the nodes; {RESUMES}",
        retryable=True,
    ),
    Cause.SUPERVISOR_LOST: CauseInfo(
        f"Something outside the job ended it; {RESUMES}",
        retryable=True,
        of_whole_job=True,
    ),
    Cause.CANNOT_START: CauseInfo(
        "Look at the node's runtime; a retry may meet another node",
        retryable=True,
    ),
    Cause.IMAGE: CauseInfo(
        "See whether the registry can be reached from the nodes; a retry may help",
        retryable=True,
        in_brief="image not pulled",
    ),
    Cause.CONFIG: CauseInfo(
        f"Create what is missing or correct its name; {_SAME}",
        retryable=False,
        in_brief="configuration missing",
    ),
    Cause.MOUNT: CauseInfo(
        "Look at the volume and its driver; a retry may help",
        retryable=True,
        in_brief="volume not mounted",
    ),
    Cause.CODE: CauseInfo(
        f"Correct the code's address, revision or credentials (a Secret, GIT_SYNC_* variables); {_SAME}",
        retryable=False,
        in_brief="code not fetched",
    ),
    Cause.INIT: CauseInfo(
        "See the log of that container for what it waits for; a retry may help",
        retryable=True,
        in_brief="init container failed",
    ),
    Cause.START_TIMEOUT: CauseInfo(
        "Look at the pod's events, or raise the start timeout; a retry may help",
        retryable=True,
    ),
    Cause.UNSCHEDULABLE: CauseInfo(
        "Ask for less or free a node (ptjob top node shows what there is); "
        "a retry, or a longer queue timeout, waits again",
        retryable=True,
    ),
    Cause.QUOTA: CauseInfo(
        "Ask for less or free quota; a retry, or a longer queue timeout, waits again",
        retryable=True,
    ),
    Cause.FORBIDDEN: CauseInfo(
        f"Ask for what the namespace allows, or have its rules changed; {_SAME}",
        retryable=False,
    ),
    Cause.QUEUED: CauseInfo(
        "Look at the queue or raise the queue timeout; a retry waits again",
        retryable=True,
    ),
    Cause.SIDECAR: CauseInfo(
        f"Make it a native sidecar or keep it out of the pod; {_SAME}",
        retryable=False,
        in_brief="sidecar does not end",
    ),
    Cause.DEADLINE: CauseInfo(
        f"{_MORE_TIME} or make the training shorter; {_SAME}",
        retryable=False,
        of_whole_job=True,
    ),
    Cause.TIMED_OUT: CauseInfo(
        f"Raise the timeout if the training made progress; {RESUMES}",
        retryable=True,
        of_whole_job=True,
        verb="timed out",
    ),
    Cause.DELETED: CauseInfo(
        "It is not created again by itself: to train again, submit it again, clear its Airflow task or start a new run "
        "of the pipeline",
        retryable=False,
        of_whole_job=True,
        verb="is gone",
    ),
    Cause.OUTPUTS: CauseInfo(
        f"Correct the program or the address; {_SAME}",
        retryable=False,
        of_whole_job=True,
        in_brief="outputs missing",
    ),
    Cause.NO_PROGRESS: CauseInfo(
        "See why the training gets no further, and whether it goes on from PTJOB_RESUME_FROM "
        "(docs/how-to/survive-preemption.md); a retry would repeat the same steps",
        retryable=False,
    ),
    Cause.UNKNOWN: CauseInfo(
        f"Look at the job's events and its operator; {RESUMES}",
        retryable=True,
        passes=False,
        of_whole_job=True,
    ),
}


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Cause of an unsuccessful job.

    Attributes:
        cause: the code of the cause, for programs.
        summary: the failure without the job's name: the replica, its rank, what happened to it.
        resolution: what to do next.
        retryable: the same job may succeed at the next try.
        passes: it may succeed because the cause passes by itself, such as a lost node; False for a program's error.
        exception: the type of the exception that ended the program, as Python prints it; "" for none.
        replica: the pod that failed first; "" for none.
        collateral: pods that ended because `replica` did.
        unstarted: the pods in `collateral` whose training had not started.
        also_failed: other pods that failed for causes of their own.
        log_tail: the last lines of a replica's log.
        tail_of: the replica that wrote `log_tail`; "" for `replica`.
    """

    cause: Cause
    summary: str
    resolution: str
    retryable: bool
    passes: bool = False
    exception: str = ""
    replica: str = ""
    collateral: tuple[str, ...] = ()
    unstarted: tuple[str, ...] = ()
    also_failed: tuple[str, ...] = ()
    log_tail: tuple[str, ...] = ()
    tail_of: str = ""

    @classmethod
    def of(cls, cause: Cause, summary: str, **more: Any) -> Self:
        """Build a diagnosis with the default advice for its cause; `more` overrides any field."""
        info = CAUSES[cause]
        fields = {"resolution": info.advice, "retryable": info.retryable, **more, "cause": cause, "summary": summary}
        return cls(**{"passes": passes_by_itself(cause, retryable=fields["retryable"]), **fields})

    @classmethod
    def unknown(cls, summary: str = "it ended without success, for an unknown reason") -> Self:
        """Build the diagnosis of an unknown cause."""
        return cls.of(Cause.UNKNOWN, summary)

    @property
    def by_platform(self) -> bool:
        """Return whether the platform ended the job: an eviction, a preemption, or a node that was drained or lost.

        Not for an eviction that a retry cannot avoid, which is for a limit of the pod itself, and not for a mere
        SIGTERM or a deleted pod, as a person may have caused these.
        """
        return self.retryable and CAUSES[self.cause].by_platform

    def report(self, ref: JobRef, *, has_ended: bool = True) -> str:
        """Return the text for people: one line with the failure and the advice, then the replica's last lines.

        A job that has not ended was given up and left in place, see `left_in_place`.
        """
        verb = CAUSES[self.cause].verb if has_ended else "was given up"
        return "\n".join([f"{ref} {verb}: {self.in_one_line(ref)}", *self.details(ref)])

    def in_one_line(self, ref: JobRef) -> str:
        """Return the failure and the advice, in one line."""
        return f"{self.failure(ref)}. {self.resolution}."

    def failure(self, ref: JobRef) -> str:
        """Return the summary, with the job's name removed from the beginning of pod names that have a rank."""
        return re.sub(rf"{re.escape(ref.name)}-(\S+ \(rank \d+\))", r"\1", self.summary).rstrip(".")

    def details(self, ref: JobRef) -> list[str]:
        """Return lines about the other replicas, then the last lines of the log; [] if there are none."""
        prefix, lines = f"{ref.name}-", []
        if failed := [name for name in self.collateral if name not in self.unstarted]:
            lines.append(f"{_names(failed, prefix)} failed as a consequence.")
        if self.unstarted:
            lines.append(f"{_names(self.unstarted, prefix)} had not started.")
        if self.also_failed:
            lines.append(f"{_names(self.also_failed, prefix)} failed as well.")
        tail = bounded_tail(self.log_tail)
        if tail and not (len(tail) == 1 and self._quotes(tail[0])):
            lines.append(f"{self._tail_title()}:")
            lines += [f"  {line}".rstrip() for line in tail]
        return lines

    def without_lines(self, shown: Collection[str]) -> Self:
        """Return the diagnosis without its last lines if all of them are among the lines already shown."""
        tail = bounded_tail(self.log_tail)
        return replace(self, log_tail=()) if set(tail) <= set(shown) else self

    def _quotes(self, line: str) -> bool:
        """Return whether the summary contains the line, or the part of the line after its first colon."""
        return (line.partition(": ")[2] or line) in self.summary

    def _tail_title(self) -> str:
        if self.replica and self.tail_of not in {"", self.replica}:
            return f"No last lines of {self.replica} are known; last lines of {self.tail_of}"
        return f"Last lines of {self.tail_of or self.replica or 'the log'}"

    def without_log(self, gone_with: str = "the job") -> Self:
        """Return the diagnosis with advice for a deleted job or pod, which does not send to the deleted log."""
        if not self.resolution.startswith(("See the log", "See its log")):
            return self
        has_lines = bool(self.log_tail) and self.tail_of in {"", self.replica}
        instead = "See its last lines" if has_lines else f"Its log is gone with {gone_with}"
        _, semicolon, rest = self.resolution.partition(";")
        return replace(self, resolution=f"{instead}{semicolon}{rest}")

    def without_progress(self, text: str) -> Self:
        """Return the diagnosis of an attempt after which none follows; the text, of `resumed.no_progress`, says why."""
        info, summary = CAUSES[Cause.NO_PROGRESS], f"{self.summary}; {text}"
        final = replace(self, cause=Cause.NO_PROGRESS, summary=summary, resolution=info.advice, exception="")
        return replace(final, retryable=False, passes=False)

    def left_in_place(self) -> Self:
        """Return the diagnosis with advice for a job that was given up, but not deleted."""
        return replace(self, resolution=while_it_is_there(self.resolution))

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-safe fields."""
        lists = {name: list(getattr(self, name)) for name in _LISTS}
        return {**asdict(self), **lists, "cause": self.cause.value}

    def to_text(self) -> str:
        """Return the diagnosis as text for the job's annotation, with its log shortened."""
        return json.dumps(self.bounded().to_dict(), separators=(",", ":"))

    def bounded(self) -> Self:
        """Return the diagnosis with its last lines cut to the size that is stored on an object."""
        return replace(self, log_tail=bounded_tail(self.log_tail))

    @classmethod
    def stored_in(cls, job: Mapping[str, Any]) -> Self | None:
        """Return the diagnosis that is annotated on a job; None if the annotation is missing or unreadable."""
        try:
            return cls.from_dict(read_object(annotation_of(job, DIAGNOSIS_ANNOTATION)))
        except MALFORMED:
            return None

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Rebuild a diagnosis from `to_dict`'s value; a cause that only another version knows becomes UNKNOWN."""
        cause = Cause(fields["cause"]) if fields["cause"] in set(Cause) else Cause.UNKNOWN
        lists = {name: tuple(map(str, fields.get(name, ()))) for name in _LISTS}
        return cls(**{**known_fields(cls, fields), **lists, "cause": cause})


def while_it_is_there(advice: str) -> str:
    """Return the advice for a job that still exists: without the part about a retry, as the job may still start.

    The operator and the kubelet repeat the search for a missing object until they find it.
    """
    step, _, rest = advice.partition("; ")
    return (step if rest.startswith("a retry") else advice).replace(_RENAMED, _CREATED)


def passes_by_itself(cause: Cause, *, retryable: bool) -> bool:
    """Return whether a cause passes by itself, as far as the cause alone shows; see `Diagnosis.passes`."""
    return retryable and CAUSES[cause].passes


def named(replica: str, ranks: Mapping[str, int]) -> str:
    """Return a replica's name, with its rank if the rank is known."""
    return f"{replica} (rank {ranks[replica]})" if replica in ranks else replica


def first_few(texts: Sequence[str], limit: int = 3, *, more: str = "more") -> list[str]:
    """Return the first texts, and one text with the number of further ones, such as `2 more`."""
    return [*texts[:limit], *([f"{len(texts) - limit} {more}"] if len(texts) > limit else [])]


def by_rank(names: Iterable[str], ranks: Mapping[str, int]) -> list[str]:
    """Return the replicas' names, each once, in the order of their ranks; names without a rank come last."""
    return sorted(set(names), key=lambda name: (ranks.get(name, len(ranks)), name))


def bounded_tail(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the last lines, at most TAIL_LINES and TAIL_BYTES; of a line that is longer, its end."""
    kept: list[str] = []
    room = TAIL_BYTES
    for line in reversed(lines[-TAIL_LINES:]):
        data = line.encode("utf-8", "replace")
        if len(data) > room and kept:
            break
        kept.append(data[-TAIL_BYTES:].decode("utf-8", "ignore"))
        room -= len(data) + 1
    return tuple(reversed(kept))


def _names(replicas: Sequence[str], prefix: str) -> str:
    return ", ".join(first_few([replica.removeprefix(prefix) for replica in replicas], 5))
