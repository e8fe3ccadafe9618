"""The small training of a schedule, and its own record of what it did.

Each process of the training appends to one file on the claim. A line has the attempt, the rank, the seconds since 1970
and what happened:

    1 0 1795792000.123456 start 0        begins after step 0, without a checkpoint
    1 0 1795792001.523456 step 1
    1 0 1795792009.123456 saves 7        has begun to write the checkpoint of step 7
    1 0 1795792009.723456 saved 7        it is complete
    2 0 1795792020.123456 start 7 step-7.state
    2 0 1795792030.123456 end
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cluster.images import INIT_IMAGE
from kubernetes_backend.nodes import LEAVES_SOON
from preempted.schedule import By, Schedule, Style, Way
from ptjob_provider.core.identity import Owner
from ptjob_provider.core.spec import TrainingJob

if TYPE_CHECKING:
    from collections.abc import Iterable

TOTAL = 100_000
CLAIM = "state"
ONE_TRY = "one-try"
"""Runtime of TrainJobs whose pods are not replaced."""

_TRAPS = {Style.SAVES: "trap 'stopping=1' TERM", Style.ENDS: "trap 'exit 143' TERM", Style.IGNORES: "trap '' TERM"}

_PROGRAM = """\
top=/state/{stem}
rank="${{JOB_COMPLETION_INDEX:-$RANK}}"
note() {{ echo "$PTJOB_ATTEMPT $rank $EPOCHREALTIME $*" >> $top/record; }}
mkdir -p $top
{trap}
if [ "$rank" != 0 ]; then
  note start 0
  until [ -e $top/over-$PTJOB_ATTEMPT ] || [ -n "$stopping" ]; do sleep 0.3; done
  [ -z "$stopping" ] || exit 143
  note end
  exit 0
fi
step=0
if [ -n "$PTJOB_RESUME_FROM" ] && {resumes}; then step=$(cat "$PTJOB_RESUME_FROM"); fi
note start $step ${{PTJOB_RESUME_FROM##*/}}
mkdir -p "$PTJOB_CHECKPOINT_DIR"
save() {{
  path="$PTJOB_CHECKPOINT_DIR/step-$step.state"
  note saves $step
  echo $step > "$path.tmp"
  sleep $1
  mv "$path.tmp" "$path"
  note saved $step
}}
until [ -e $top/finish ]; do
  sleep 0.3
  step=$((step+1))
  note step $step
  echo "step $step/{total} loss: 0.5"
  if [ -n "$stopping" ]; then save 0; exit 143; fi
  [ $((step % {every})) -ne 0 ] || save 1.5
done
save 0
: > $top/over-$PTJOB_ATTEMPT
note end
"""


@dataclass(frozen=True)
class Line:
    """One line of the record."""

    attempt: int
    rank: int
    at: float
    what: str
    step: int
    name: str

    @classmethod
    def parse(cls, text: str) -> Line:
        """Return a line of the file."""
        attempt, rank, at, what, *more = text.split(" ")
        step, name, *_ = [*more, "", ""]
        return cls(int(attempt), int(rank), float(at), what, int(step or 0), name)


def lines_of(record: str) -> list[Line]:
    """Return the record's whole lines."""
    return [Line.parse(text) for text in record.split("\n")[:-1] if text]


def starts(lines: Iterable[Line], *, rank: int = 0) -> list[Line]:
    """Return the starts of this rank's processes."""
    return [line for line in lines if (line.rank, line.what) == (rank, "start")]


def farthest(lines: Iterable[Line]) -> int:
    """Return the highest step so far."""
    return max((line.step for line in lines if line.what == "step"), default=0)


def stem(schedule: Schedule) -> str:
    """Return the beginning of the name of the schedule's jobs."""
    return f"p{schedule.seed}"


def owner(schedule: Schedule) -> Owner:
    """Return the task."""
    return Owner(instance="preempted", ids={"task_id": stem(schedule)}, labels={})


def job(schedule: Schedule, namespace: str) -> TrainingJob:
    """Return the schedule's job: two pods, of which rank 0 writes the checkpoints."""
    resumes = "true" if schedule.resumes else "false"
    trap = _TRAPS[schedule.style]
    script = _PROGRAM.format(stem=stem(schedule), trap=trap, resumes=resumes, total=TOTAL, every=Schedule.EVERY)
    fields: dict[str, Any] = {}
    if schedule.way is Way.TRAINJOB_AT_ONCE:
        fields["runtime"] = f"TrainingRuntime/{ONE_TRY}"
    if schedule.stops_kubelet:
        fields["tolerations"] = LEAVES_SOON
    return TrainingJob.parse(
        name=stem(schedule),
        kind="PyTorchJob" if schedule.way is Way.PYTORCHJOB else "TrainJob",
        namespace=namespace,
        image=INIT_IMAGE,
        command=["sh", "-c", script],
        workers=2,
        cpu="20m",
        memory="32Mi",
        volumes=[f"{CLAIM}:/state"],
        checkpoints=f"/state/{stem(schedule)}/checkpoints",
        termination_grace_period_seconds=3,
        **fields,
    )


CAUSES = {By.EVICTION: {"evicted"}, By.KUBELET: {"node_lost"}}
OF_REASON = {"PreemptionByScheduler": "preempted", "DeletionByTaintManager": "node_lost"}
