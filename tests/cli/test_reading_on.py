"""Tests of `ptjob logs` where a log is gone, or another log has the cause. The back-end is scripted."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from fakes import ScriptedBackend, finished
from ptjob_provider.core.backend import Observation
from ptjob_provider.core.diagnosis import Cause, Diagnosis
from ptjob_provider.core.errors import JobNotFound, PermissionDenied
from ptjob_provider.core.history import PodHistory, Termination, to_text
from ptjob_provider.core.identity import DIAGNOSIS_ANNOTATION, RECORD_ANNOTATION
from ptjob_provider.core.logs import LogCursor, LogLine
from rows import each_row

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from click.testing import Result

    from ptjob_provider.core.identity import JobRef, Manifest

AT = datetime(2026, 11, 20, 10, 1, tzinfo=UTC)
GONE = "team/digits-master-0: the pod is gone, and its log with it"
WORKER_FAILED = Diagnosis.of(
    Cause.PYTHON_EXCEPTION,
    "digits-worker-0 (rank 1) exited with code 1: ValueError: no data",
    replica="digits-worker-0",
    log_tail=("ValueError: no data",),
)


class BackendWithLostLogs(ScriptedBackend):
    """A back-end with one job; each replica has a log of one line, unless it is lost."""

    def __init__(self, job: Manifest, *, pods: tuple[str, ...], lost: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.jobs["team", "digits"] = job
        self.worlds = [Observation(job=job, pods=[ended_pod(name) for name in pods])]
        self.lost = lost
        self.goes = False

    async def logs(
        self, ref: JobRef, replica: str, *, since: LogCursor | None = None, follow: bool = True
    ) -> AsyncIterator[LogLine]:
        """Yield the replica's line, or raise an error as a cluster does."""
        if self.goes:
            self.jobs.clear()
        if replica in self.lost and follow:
            return
        if replica in self.lost:
            raise JobNotFound(f"team/{replica}: the pod is gone, and its log with it")
        place = LogCursor(pod_uid=replica, container="pytorch", restart_count=0, timestamp=AT.isoformat(), ordinal=0)
        yield LogLine(text=f"{replica} wrote", timestamp=AT.isoformat(), cursor=place)


def a_job(condition: str, why: Diagnosis = WORKER_FAILED) -> Manifest:
    """Return an ended job; its annotations have the record and the diagnosis."""
    template = {"spec": {"containers": [{"name": "pytorch"}]}}
    roles = {role: {"replicas": 1, "template": template} for role in ("Master", "Worker")}
    end = Termination(
        replica="digits-master-0", key="m", container="pytorch", exit_code=1, started_at=AT, finished_at=AT
    )
    notes = {RECORD_ANNOTATION: to_text(PodHistory(terminations=(end,))), DIAGNOSIS_ANNOTATION: why.to_text()}
    created = "2026-11-20T10:00:00Z"
    meta = {"name": "digits", "namespace": "team", "uid": "u", "creationTimestamp": created, "annotations": notes}
    spec = {"pytorchReplicaSpecs": roles}
    return finished({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": meta, "spec": spec}, condition)


def ended_pod(name: str) -> Manifest:
    """Return a pod whose training has run and failed."""
    _, role, index = name.split("-")
    labels = {
        "training.kubeflow.org/replica-type": role,
        "training.kubeflow.org/replica-index": index,
        "training.kubeflow.org/job-name": "digits",
    }
    times = {"startedAt": "2026-11-20T10:01:00Z", "finishedAt": "2026-11-20T10:02:00Z"}
    state = {"terminated": {"exitCode": 1, "reason": "Error", **times}}
    container = {"name": "pytorch", "restartCount": 0, "containerID": f"c://{name}", "state": state}
    meta = {"name": name, "namespace": "team", "uid": name, "labels": labels, "creationTimestamp": AT.isoformat()}
    return {
        "metadata": meta,
        "spec": {"containers": [{"name": "pytorch"}]},
        "status": {"phase": "Failed", "containerStatuses": [container]},
    }


@each_row("follow", [["-f"], []])
def test_the_error_about_a_log_that_is_gone_says_where_more_is_known(
    follow: list[str], ptjob: Callable[..., Result]
) -> None:
    """The job exists, so the exit code is not 3. Nothing is left to follow, either."""
    backend = BackendWithLostLogs(a_job("Failed"), pods=("digits-worker-0",), lost=("digits-master-0",))

    refused = ptjob(backend, "logs", "digits", *follow)

    assert refused.exit_code == 1
    assert refused.stderr == f"Error: {GONE}; more: ptjob get digits\n"


def test_logs_that_are_left_are_printed_where_another_one_is_gone(ptjob: Callable[..., Result]) -> None:
    """With all replicas, this includes those after the lost one."""
    backend = BackendWithLostLogs(a_job("Failed"), pods=("digits-worker-0",), lost=("digits-master-0",))

    refused = ptjob(backend, "logs", "digits", "--all")

    assert refused.stdout == "[worker-0] digits-worker-0 wrote\n"
    assert refused.stderr == f"Error: {GONE}; more: ptjob get digits\n"


def test_a_job_that_goes_while_its_log_is_read_is_not_there(ptjob: Callable[..., Result]) -> None:
    """Exit code 3 is right here."""
    backend = BackendWithLostLogs(a_job("Failed"), pods=(), lost=("digits-master-0",))
    backend.goes = True

    refused = ptjob(backend, "logs", "digits")

    assert refused.exit_code == 3


LIMIT = Diagnosis.of(
    Cause.DEADLINE, "it was active too long; until then digits-worker-0 ran", replica="digits-worker-0"
)
OF_RANK_0 = Diagnosis.of(Cause.KILLED, "digits-master-0 (rank 0) was killed", replica="digits-master-0")
BOTH = ("digits-master-0", "digits-worker-0")
POINTER = "── worker-0 (rank 1) failed first: ptjob logs digits -i worker-0\n"


@each_row("follow", [["-f"], []])
@each_row(
    ("job", "pods", "which", "said"),
    [
        (a_job("Failed"), BOTH, [], POINTER),
        (a_job("Failed"), BOTH, ["-i", "worker-0"], ""),
        (a_job("Failed"), BOTH, ["--all"], ""),
        (a_job("Failed", OF_RANK_0), BOTH, [], ""),
        (a_job("Failed", LIMIT), BOTH, [], ""),
        (a_job("Succeeded"), BOTH, [], ""),
        (a_job("Running"), BOTH, [], ""),
    ],
)
def test_a_log_ends_with_the_other_replica_that_failed_first(
    job: Manifest,
    pods: tuple[str, ...],
    which: list[str],
    said: str,
    ptjob: Callable[..., Result],
    *,
    follow: list[str],
) -> None:
    """Rank 0's own traceback only has a lost connection; stdout has nothing but the log."""
    printed = ptjob(BackendWithLostLogs(job, pods=pods), "logs", "digits", *which, *follow)

    assert printed.stderr == said
    assert all(line.endswith(" wrote") for line in printed.stdout.splitlines())


@each_row("error", [PermissionDenied("may not", code=403), JobNotFound("gone", code=404)])
def test_a_log_that_was_read_stays_good_where_nothing_tells_who_failed_first(
    error: Exception, ptjob: Callable[..., Result]
) -> None:
    """The user may not watch the job, or it is deleted meanwhile."""
    backend = BackendWithLostLogs(a_job("Failed"), pods=BOTH)
    backend.refusals = {"watch": [error]}

    printed = ptjob(backend, "logs", "digits")

    assert (printed.stdout, printed.stderr) == ("digits-master-0 wrote\n", "")
