"""The job of a schedule, and the expected observations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cluster.images import INIT_IMAGE
from faults.schedule import Story
from ptjob_provider.core.identity import Owner
from ptjob_provider.core.kinds import PYTORCHJOB
from ptjob_provider.core.run.outcome import Outcome
from ptjob_provider.core.spec import TrainingJob

if TYPE_CHECKING:
    from faults.schedule import Schedule
    from ptjob_provider.core.identity import Manifest

DEADLINE = 14.0
"""Seconds after which a job that hangs must be stopped."""

START_TIMEOUT = 45.0
"""Seconds after which a job that does not start is given up; the kubelet looks again for a missing Secret in half."""

NEIGHBOUR = "neighbour"
OTHER_INSTANCE = "faults-of-another"

_LINES = """\
i=0
while [ $i -lt {lines} ]; do
  echo "run $run line $i"
  i=$((i+1))
  [ $((i % {burst})) -ne 0 ] || sleep 0.1
done
"""
_RUN = """\
run=$(cat /dev/shm/runs 2>/dev/null || echo 0)
echo $((run+1)) > /dev/shm/runs
"""
"""Number of the container's run; /dev/shm is the pod's and survives a restart of the container."""

_ENDS = {
    Story.SUCCEEDS: "exit 0",
    Story.FAILS: "exit 1",
    Story.RESTARTS: "[ $run -ge 1 ]",
    Story.IS_DELETED: "sleep 600",
    Story.HANGS: "sleep 600",
    Story.LOSES_A_WORKER: "sleep 600",
    Story.STARTS_UNSEEN: "sleep 45; exit 0",
}
_OUTCOMES = {
    Story.SUCCEEDS: Outcome.SUCCEEDED,
    Story.FAILS: Outcome.FAILED,
    Story.RESTARTS: Outcome.SUCCEEDED,
    Story.IS_DELETED: Outcome.DELETED,
    Story.HANGS: Outcome.TIMED_OUT,
    Story.LOSES_A_WORKER: Outcome.FAILED,
    Story.STARTS_UNSEEN: Outcome.SUCCEEDED,
}
_FAILING_REPLICA = {Story.FAILS: "master-0", Story.LOSES_A_WORKER: "worker-0"}


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Expected observations.

    Attributes:
        outcome: outcome that following returns.
        lines: lines of rank 0, if it writes them all.
        second_run: index of the first line of the second run.
        whole: rank 0 writes all lines, and the log of the last run is kept.
        failing_replica: end of the name of the replica that failed.
    """

    outcome: Outcome
    lines: tuple[str, ...]
    second_run: int
    whole: bool
    failing_replica: str = ""

    @classmethod
    def of(cls, schedule: Schedule) -> Expected:
        """Return the expected observations of a schedule's job."""
        runs = 2 if schedule.story is Story.RESTARTS else 1
        return cls(
            outcome=_OUTCOMES[schedule.story],
            lines=tuple(f"run {run} line {number}" for run in range(runs) for number in range(schedule.lines)),
            second_run=schedule.lines,
            whole=schedule.story in {Story.SUCCEEDS, Story.FAILS, Story.RESTARTS, Story.STARTS_UNSEEN},
            failing_replica=_FAILING_REPLICA.get(schedule.story, ""),
        )


def of_other(schedule: Schedule) -> Schedule:
    """Return the schedule of the other installation's job, which writes one line and succeeds."""
    return replace(schedule, story=Story.SUCCEEDS, lines=1, burst=1)


def neighbour(namespace: str) -> Manifest:
    """Return another owner's job that stays suspended."""
    waits = TrainingJob.parse(name=NEIGHBOUR, namespace=namespace, image=INIT_IMAGE, command=["true"], suspend=True)
    owner = Owner(instance="faults", ids={"task_id": NEIGHBOUR}, labels={})
    return PYTORCHJOB.render(waits, owner=owner, attempt=1).manifest


def stem(schedule: Schedule) -> str:
    """Return the beginning of the name of the schedule's job."""
    return f"s{schedule.seed}"


def owner(schedule: Schedule, *, instance: str = "faults") -> Owner:
    """Return the task that owns the job, of this or of another installation."""
    ids = {"dag_id": "faults", "task_id": "t", "run_id": stem(schedule)}
    return Owner(instance=instance, ids=ids, labels={})


def job(schedule: Schedule, namespace: str) -> TrainingJob:
    """Return the schedule's job."""
    script = _RUN + _LINES.format(lines=schedule.lines, burst=schedule.burst) + _ENDS[schedule.story]
    has_worker = schedule.story is Story.LOSES_A_WORKER
    return TrainingJob.parse(
        name=stem(schedule),
        namespace=namespace,
        image=INIT_IMAGE,
        command=["sh", "-c", script],
        workers=2 if has_worker else 1,
        worker={"command": ["sh", "-c", "sleep 1; exit 3"]} if has_worker else None,
        env=[_from_secret(schedule)] if schedule.story is Story.STARTS_UNSEEN else None,
        restart_policy="OnFailure" if schedule.story is Story.RESTARTS else "Never",
        termination_grace_period_seconds=1,
        shared_memory="16Mi",
        cpu="50m",
        memory="64Mi",
    )


def _from_secret(schedule: Schedule) -> Manifest:
    return {"name": "LATER", "valueFrom": {"secretKeyRef": {"name": stem(schedule), "key": "key"}}}


def secret(schedule: Schedule) -> Manifest:
    """Return the Secret without which the job does not start."""
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": stem(schedule)}, "stringData": {"key": "1"}}
