"""What may happen to a step, drawn from a seed, and whether a job was left behind.

A step is killed up to twice, and started again as the engine does; at last its run is terminated or its pod deleted.
Each stroke falls at a moment of its own: while the step's program loads, around its submission, while the job starts,
or while it runs.
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
    """What happens to a step."""

    TERMINATE = "terminate"
    KILL = "kill"
    DELETE = "delete"
    DELETE_AT_ONCE = "delete at once"


class Moment(StrEnum):
    """When it happens: so much later a random time passes."""

    BEGUN = "its container runs"
    SUBMITTED = "it has submitted or adopted its job"
    TRAINING = "the training prints"


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The strokes of one run.

    Attributes:
        seed: what it was drawn from.
        strokes: each with its moment, and the seconds after that.
        alive: for how many seconds a step that is told to stop lives on; with Argo it is anything up to one.
    """

    seed: int
    strokes: tuple[tuple[Stroke, Moment, float], ...]
    alive: float

    @classmethod
    def draw(cls, seed: int) -> Schedule:
        """Return the schedule of a seed."""
        draws = random.Random(seed)  # noqa: S311 - the same ones each time
        ends = [each for each in Stroke if each is not Stroke.KILL]
        kinds = [Stroke.KILL] * draws.choice((0, 1, 1, 2)) + [draws.choice(ends)]
        strokes = [(kind, draws.choice(list(Moment)), draws.uniform(0, LONGEST_WAIT)) for kind in kinds]
        return cls(seed=seed, strokes=tuple(strokes), alive=draws.uniform(0, 1))

    def __str__(self) -> str:
        told = (f"{stroke} {wait:.1f} s after {moment}" for stroke, moment, wait in self.strokes)
        return f"{self.seed}: {', '.join(told)}; {self.alive:.1f} s to live"


@dataclass(kw_only=True)
class Outcome:
    """What came of a schedule.

    Attributes:
        schedule: what was done.
        wrong: what must not be; empty if all is well.
        run: whose steps they were.
        knew: whether the last step was terminated, and had said which job is its.
        left_to_run: whether a job was still there when the last step was over, and went with the pods of the run.
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
    """Yield what came of each schedule, and look once more at the end of all.

    What a step that was struck had just asked for may be done after everything of its run seemed to be gone.
    """
    pipeline, outcomes = lab.waiting, []  # kfp compiles one pipeline at a time
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        for outcome in pool.map(lambda seed: strike(lab, pipeline, Schedule.draw(seed)), seeds):
            outcomes.append(outcome)
            yield outcome
    for outcome in outcomes:
        _look(lab, outcome)


def strike(lab: Lab, pipeline: dict[str, Any], schedule: Schedule) -> Outcome:
    """Carry out a schedule, and look what is left."""
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
    except ClusterFailed as error:
        outcome.wrong.append(str(error))
    _look(lab, outcome)
    return outcome


def _look(lab: Lab, outcome: Outcome) -> None:
    """See whether all jobs of a run that was deleted are gone, and how many there were."""
    if outcome.wrong:
        return
    try:
        lab.wait_until_gone(outcome.run)
        if len(submitted := lab.ever_submitted(outcome.run)) > 1:
            outcome.wrong.append(f"{len(submitted)} jobs: {sorted(submitted)}")
    except ClusterFailed as error:
        outcome.wrong.append(str(error))


def _strikes(lab: Lab, pipeline: dict[str, Any], schedule: Schedule, run: str) -> tuple[Step, bool]:
    """Strike, and start again what was killed; return the last step, and whether it knew its job before."""
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
