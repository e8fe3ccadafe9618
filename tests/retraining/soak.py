"""The soak: writes batches while triggerers are killed and trainings fail, and reports what happened to each batch."""

from __future__ import annotations

import hashlib
import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from retraining.judgement import faults
from retraining.schedule import AFTER, BEFORE, drop
from task_run import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from retraining.judgement import Training
    from retraining.scene import Scene
    from retraining.schedule import Drop, Schedule

PATIENCE = 900.0
"""Seconds for the remaining batches to be trained on after the last kill."""

QUIET = 20.0
"""Seconds without an active run after which no further run is expected."""

CLOSING = 4
"""Maximum number of extra batches at the end: after a failed run, only a new event starts the next run."""


MOST_WRITERS = 64


@dataclass(kw_only=True)
class Outcome:
    """Result of a soak.

    Attributes:
        wrong: see `judgement.faults`.
        trainings: all trainings.
        dropped: number of batches.
        strikes: number of killed triggerers.
        told: number of Airflow's events per batch.
        seconds: duration of the soak.
    """

    wrong: list[str]
    trainings: list[Training]
    dropped: int
    strikes: int
    told: Counter[str]
    seconds: float

    @property
    def fates(self) -> Counter[str]:
        """The number of trainings per planned end."""
        return Counter(each.fate for each in self.trainings)

    @property
    def failed(self) -> int:
        """The number of trainings that were made to fail."""
        return self.fates[BEFORE] + self.fates[AFTER]

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        good = sum(each.succeeded for each in self.trainings)
        twice = sum(count - 1 for count in self.told.values())
        failed = f"{self.fates[BEFORE]} were made to fail before the model was written and {self.fates[AFTER]} after it"
        return [
            f"{self.dropped} batches in {self.seconds:.0f} s; {self.strikes} triggerers were killed",
            f"{len(self.trainings)} trainings: {good} succeeded, {failed}",
            f"Airflow was told of {len(self.told)} batches; {twice} times of one that it had been told of before",
            *(f"wrong: {each}" for each in self.wrong),
            f"{len(self.wrong)} things are wrong",
        ]


@dataclass
class Soak:
    """Runs a schedule in an environment."""

    scene: Scene
    schedule: Schedule
    tell: Callable[[str], None]
    dropped: list[Drop] = field(default_factory=list)
    strikes: int = 0

    def run(self) -> Outcome:
        """Run the schedule, wait until all batches are trained on, and return the result."""
        began = time.monotonic()
        with ThreadPoolExecutor() as pool:
            for acting in [pool.submit(act, began) for act in (self._drop, self._strike)]:
                acting.result()
        self.tell(f"{len(self.dropped)} batches were dropped, {self.strikes} triggerers killed; the rest is trained on")
        self._finish()
        return Outcome(
            wrong=self._wrong(),
            trainings=self.scene.trainings(),
            dropped=len(self.dropped),
            strikes=self.strikes,
            told=Counter(self.scene.events()),
            seconds=time.monotonic() - began,
        )

    def _drop(self, began: float) -> None:
        """Write each batch at its time; the batches of a burst are written concurrently."""
        writing = []
        with ThreadPoolExecutor(MOST_WRITERS) as pool:
            for each in self.schedule.drops:
                _sleep_until(began + each.at)
                self.dropped.append(each)
                writing.append(pool.submit(self.scene.deliver, each))
        for written in writing:
            written.result()

    def _strike(self, began: float) -> None:
        for strike in self.schedule.strikes:
            _sleep_until(began + strike.at)
            for victim in strike.victims:
                self.scene.stack[victim].kill()
                self.strikes += 1
            time.sleep(strike.down)
            for victim in strike.victims:
                self.scene.stack[victim].start()

    def _finish(self) -> None:
        """Wait until every batch was new in a training; write extra batches to start runs after failures."""
        draw = random.Random(len(self.dropped))  # noqa: S311 - reproducible, not a secret
        for number in range(CLOSING + 1):
            until(self._is_told, timeout=PATIENCE, what="an event for each batch", interval=2.0)
            self._settle()
            if number == CLOSING or not any("was lost" in each for each in self._wrong()):
                return
            self.tell("a batch more, to start the run after one that has failed")
            self.dropped.append(drop(draw, f"closing-{number}", 0.0))
            self.scene.deliver(self.dropped[-1])

    def _is_told(self) -> bool:
        """Return whether Airflow has an event for each batch."""
        return len(set(self.scene.events())) >= len(self.dropped)

    def _settle(self) -> None:
        quiet_since = [time.monotonic()]

        def is_quiet() -> bool:
            if not self.scene.is_settled():
                quiet_since[0] = time.monotonic()
            return time.monotonic() - quiet_since[0] >= QUIET

        until(is_quiet, timeout=PATIENCE, what="the end of all runs", interval=1.0)

    def _wrong(self) -> list[str]:
        return faults({each.name: _digests(each) for each in self.dropped}, self.scene.trainings())


def _digests(each: Drop) -> dict[str, str]:
    return {path: hashlib.sha256(data).hexdigest() for path, data in each.files.items()}


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))
