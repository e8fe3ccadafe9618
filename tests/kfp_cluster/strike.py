"""Random faults for a step, drawn from a seed, and a check that no job is left behind.

A step is killed up to twice and started again as by the engine; finally its run is terminated or its pod deleted.
Each fault has its own moment: while the step's program loads, around the submission, while the job starts, or while
it runs.
"""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from cluster.shell import ClusterFailed
from kfp_cluster.lab import new_run
from kfp_cluster.step_pod import Try

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kfp_cluster.lab import Lab, Step

AT_A_TIME = 3
LONGEST_WAIT = 2.0
SUBMITTED = (" was submitted: ", " was adopted: ")


class Stroke(StrEnum):
    """A fault."""

    TERMINATE = "terminate"
    KILL = "kill"
    DELETE = "delete"
    DELETE_AT_ONCE = "delete at once"


class Moment(StrEnum):
    """The event after which a random delay begins."""

    BEGUN = "its container runs"
    SUBMITTED = "it has submitted or adopted its job"
    TRAINING = "the training prints"


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The faults of one run.

    Attributes:
        seed: Seed of the schedule.
        strokes: Each fault with its moment, and the delay in seconds after that.
        alive: Seconds that a terminated step continues to run; with Argo it is up to one second.
    """

    seed: int
    strokes: tuple[tuple[Stroke, Moment, float], ...]
    alive: float

    @classmethod
    def draw(cls, seed: int) -> Schedule:
        draws = random.Random(seed)  # noqa: S311 - reproducible
        ends = [each for each in Stroke if each is not Stroke.KILL]
        kinds = [Stroke.KILL] * draws.choice((0, 1, 1, 2)) + [draws.choice(ends)]
        strokes = [(kind, draws.choice(list(Moment)), draws.uniform(0, LONGEST_WAIT)) for kind in kinds]
        return cls(seed=seed, strokes=tuple(strokes), alive=draws.uniform(0, 1))

    def __str__(self) -> str:
        told = (f"{stroke} {wait:.1f} s after {moment}" for stroke, moment, wait in self.strokes)
        return f"{self.seed}: {', '.join(told)}; {self.alive:.1f} s to live"


@dataclass(kw_only=True)
class Outcome:
    """The result of a schedule.

    Attributes:
        schedule: The schedule.
        wrong: Violations; empty if there are none.
        run: ID of the run.
        knew: True if the last step was terminated after it had logged its job.
        left_to_run: True if a job still existed when the last step ended, and was deleted with the run's pods.
    """

    schedule: Schedule
    run: str
    wrong: list[str] = field(default_factory=list)
    knew: bool = False
    left_to_run: bool = False

    def __str__(self) -> str:
        how = "; ".join(self.wrong) or ("ok, when the run went" if self.left_to_run else "ok")
        return f"{self.schedule}: {how}"


def struck(lab: Lab, seeds: Iterable[int]) -> Iterator[Outcome]:
    """Yield the outcome of each schedule, and check all of them again at the end.

    The last request of an interrupted step may take effect after everything of its run seemed to be gone.
    """
    pipeline, outcomes = lab.waiting, []  # kfp compiles one pipeline at a time
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        for outcome in pool.map(lambda seed: strike(lab, pipeline, Schedule.draw(seed)), seeds):
            outcomes.append(outcome)
            yield outcome
    for outcome in outcomes:
        _look(lab, outcome)


def strike(lab: Lab, pipeline: dict[str, Any], schedule: Schedule) -> Outcome:
    """Run a schedule, and check for leftovers."""
    outcome = Outcome(schedule=schedule, run=new_run(f"soak-{schedule.seed}"))
    try:
        step, told = _strikes(lab, pipeline, schedule, outcome.run)
        if schedule.strokes[-1][0] is Stroke.TERMINATE:
            step.wait()
            outcome.knew = told
        elif told:
            lab.wait_until_gone(outcome.run)
        outcome.left_to_run = bool(lab.live_jobs(outcome.run))
        lab.delete_run(outcome.run)
    except (AssertionError, ClusterFailed) as error:
        outcome.wrong.append(str(error))
    _look(lab, outcome)
    return outcome


def _look(lab: Lab, outcome: Outcome) -> None:
    """Check that all jobs of a deleted run are gone, and that there was at most one."""
    if outcome.wrong:
        return
    try:
        lab.wait_until_gone(outcome.run)
        if len(submitted := lab.ever_submitted(outcome.run)) > 1:
            outcome.wrong.append(f"{len(submitted)} jobs: {sorted(submitted)}")
    except (AssertionError, ClusterFailed) as error:
        outcome.wrong.append(str(error))


def _strikes(lab: Lab, pipeline: dict[str, Any], schedule: Schedule, run: str) -> tuple[Step, bool]:
    """Apply the faults, starting the step again after a kill; return the last step and whether it knew its job."""
    step, told = None, False
    for number, (stroke, moment, wait) in enumerate(schedule.strokes):
        if step is not None:
            step.wait()
        step = lab.start(Try(run=run, retry=number, alive=schedule.alive), pipeline)
        _wait_for(step, moment)
        time.sleep(wait)
        told = any(words in said for words in SUBMITTED for said in step.notices())
        _do(step, stroke)
    assert step is not None
    return step, told


def _wait_for(step: Step, moment: Moment) -> None:
    if moment is Moment.BEGUN:
        step.wait_for_notice("emissary: began")
    elif moment is Moment.SUBMITTED:
        step.wait_for_notice(", attempt 1")
    else:
        step.wait_for_line("waiting")


def _do(step: Step, stroke: Stroke) -> None:
    if stroke is Stroke.TERMINATE:
        step.terminate()
    elif stroke is Stroke.KILL:
        step.kill()
    else:
        step.delete(at_once=stroke is Stroke.DELETE_AT_ONCE)
