"""What is done to one training, drawn from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum


class By(StrEnum):
    """What takes a pod away."""

    EVICTION = "Eviction API"
    DELETION = "deleted with DisruptionTarget"
    KUBELET = "kubelet stopped"


class Moment(StrEnum):
    """When, seen from a regular checkpoint."""

    BEFORE = "before"
    IN = "in"
    AFTER = "after"


class Style(StrEnum):
    """What the program does at SIGTERM."""

    SAVES = "saves and ends"
    ENDS = "ends"
    IGNORES = "ignores it"


class Way(StrEnum):
    """What runs the training, and what its operator does about a pod that is evicted."""

    PYTORCHJOB = "PyTorchJob"
    TRAINJOB = "TrainJob"
    TRAINJOB_AT_ONCE = "TrainJob that fails at once"


@dataclass(frozen=True, kw_only=True)
class Strike:
    """One pod is taken away; with the kubelet, both are.

    Attributes:
        by: what takes it away.
        moment: when.
        rank: rank of the pod.
        later: number of regular checkpoints that are waited for before.
        offset: number of steps before the checkpoint, for BEFORE.
        reason: reason in the pod's condition, for DELETION.
    """

    by: By
    moment: Moment
    rank: int
    later: int
    offset: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """One training and what is done to it.

    Attributes:
        seed: the same seed gives the same schedule.
        way: what runs it.
        style: what the program does at SIGTERM.
        resumes: the program goes on from PTJOB_RESUME_FROM; else it begins at step 0.
        strikes: what is done, in turn.
        successor_after: seconds after the first strike at which the following process is killed, and another one goes
            on; None: it is not.
    """

    seed: int
    way: Way
    style: Style
    resumes: bool
    strikes: tuple[Strike, ...]
    successor_after: float | None

    EVERY = 7
    """Steps between regular checkpoints."""

    @classmethod
    def draw(cls, seed: int) -> Schedule:
        """Return the seed's schedule."""
        choice = random.Random(seed)  # noqa: S311 - a schedule, no secret
        is_kubelet = choice.random() < 0.15
        count = 1 if is_kubelet else choice.choice([1, 1, 2])
        return cls(
            seed=seed,
            way=choice.choices([*Way], [3, 1, 2])[0],
            style=choice.choice([*Style]),
            resumes=choice.random() < 0.8,
            strikes=tuple(_strike(choice, is_kubelet=is_kubelet) for _ in range(count)),
            successor_after=choice.uniform(0, 8) if choice.random() < 0.25 else None,
        )

    @property
    def stops_kubelet(self) -> bool:
        """Return whether the kubelet is stopped, which strikes all jobs of the node."""
        return any(strike.by is By.KUBELET for strike in self.strikes)

    def __str__(self) -> str:
        """Return the schedule for people."""
        strikes = ", then ".join(f"{each.by}, rank {each.rank}, {each.moment} a checkpoint" for each in self.strikes)
        more = "" if self.resumes else ", begins at 0"
        successor = "" if self.successor_after is None else f"; its follower dies {self.successor_after:.1f} s later"
        return f"{self.way}; {self.style}{more}; {strikes}{successor}"


def _strike(choice: random.Random, *, is_kubelet: bool) -> Strike:
    return Strike(
        by=By.KUBELET if is_kubelet else choice.choice([By.EVICTION, By.DELETION]),
        moment=choice.choice([*Moment]),
        rank=choice.randrange(2),
        later=choice.randrange(2),
        offset=choice.randrange(1, Schedule.EVERY),
        reason=choice.choice(["PreemptionByScheduler", "DeletionByTaintManager"]),
    )
