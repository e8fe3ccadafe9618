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
ENOUGH = 0.5
"""Seconds in which a step that is told to stop has its job deleted."""

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
        left_to_run: whether a job was still there when the last step was over, and went with the pods of the run.
    """

    schedule: Schedule
    wrong: list[str] = field(default_factory=list)
    left_to_run: bool = False

    def __str__(self) -> str:
        how = "; ".join(self.wrong) or ("ok, when the run went" if self.left_to_run else "ok")
        return f"{self.schedule}: {how}"


def struck(lab: Lab, seeds: Iterable[int], *, at_a_time: int = AT_A_TIME) -> Iterator[Outcome]:
    """Yield what came of each schedule."""
    pipeline = lab.waiting  # kfp compiles one pipeline at a time
    with ThreadPoolExecutor(at_a_time) as pool:
        yield from pool.map(lambda seed: strike(lab, pipeline, Schedule.draw(seed)), seeds)


def strike(lab: Lab, pipeline: dict[str, Any], schedule: Schedule) -> Outcome:
    """Carry out a schedule, and look what is left."""
    run, outcome = new_run(f"soak-{schedule.seed}"), Outcome(schedule=schedule)
    try:
        step, told = _strikes(lab, pipeline, schedule, run)
        if schedule.strokes[-1][0] is Stroke.TERMINATE:
            step.wait()
            if told and schedule.alive >= ENOUGH and (left := lab.live_jobs(run)):
                outcome.wrong.append(f"the step knew its job, had time, and left it running: {left}")
        elif told:
            lab.wait_until_gone(run)
        outcome.left_to_run = bool(lab.live_jobs(run))
        lab.delete_run(run)
        lab.wait_until_gone(run)
    except ClusterFailed as error:
        outcome.wrong.append(str(error))
    if len(submitted := lab.ever_submitted(run)) > 1:
        outcome.wrong.append(f"{len(submitted)} jobs: {sorted(submitted)}")
    return outcome


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
