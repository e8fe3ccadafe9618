"""The schedule of a soak, drawn from one seed: when batches are written, which triggerers die, how trainings end."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import cycle, islice
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

SUCCESS, BEFORE, AFTER = "success", "fail before the model", "fail after the model"
BURST = 6
"""Maximum number of batches written together."""

FILES = 3
PAUSE = (0.0, 0.6)
"""Seconds between two files of a batch, so that watchers see incomplete batches."""

FAILURES = 20
"""Maximum number of trainings that are made to fail."""

ALONE = (12.0, 40.0)
"""Seconds between two kills."""

DOWN = (1.0, 15.0)
"""Seconds that a triggerer is down; in every fourth kill the other one dies too."""


@dataclass(frozen=True, kw_only=True)
class Drop:
    """One batch.

    Attributes:
        at: seconds from the start.
        name: name of its folder.
        files: content by path.
        pauses: seconds before each file, and before the marker.
    """

    at: float
    name: str
    files: Mapping[str, bytes]
    pauses: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Strike:
    """SIGKILL of one or both triggerers.

    Attributes:
        at: seconds from the start.
        victims: the triggerers.
        down: seconds until they are restarted.
    """

    at: float
    victims: tuple[str, ...]
    down: float


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Schedule of one soak.

    Attributes:
        drops: batches in the order of time; their names are in no order.
        strikes: kills in the order of time.
        fates: planned end of the n-th training that starts; trainings after the last entry succeed.
    """

    drops: tuple[Drop, ...]
    strikes: tuple[Strike, ...]
    fates: tuple[str, ...]

    @classmethod
    def drawn(cls, seed: int, *, count: int, seconds: float) -> Self:
        """Draw a schedule.

        Args:
            seed: seed of the random numbers.
            count: number of batches.
            seconds: duration of writing batches and killing triggerers.
        """
        draw = random.Random(seed)  # noqa: S311 - reproducible, not a secret
        return cls(
            drops=tuple(sorted(_drops(draw, count, seconds), key=lambda drop: drop.at)),
            strikes=tuple(_strikes(draw, seconds)),
            fates=tuple(_fates(draw)),
        )


def _drops(draw: random.Random, count: int, seconds: float) -> list[Drop]:
    names = [f"batch-{number:04d}" for number in range(count)]
    draw.shuffle(names)
    drops: list[Drop] = []
    while len(drops) < count:
        at = draw.uniform(0.0, seconds)
        for name in names[len(drops) : len(drops) + draw.randint(1, BURST)]:
            drops.append(drop(draw, name, at))
            at += draw.uniform(0.0, 2.0)
    return drops


def drop(draw: random.Random, name: str, at: float) -> Drop:
    """Draw the content of a batch, and the pauses between its files."""
    count = draw.randint(1, FILES)
    files = {
        f"part-{number}.txt": "".join(f"{draw.random():.6f}\n" for _ in range(draw.randint(5, 40))).encode()
        for number in range(count)
    }
    pauses = tuple(draw.uniform(*PAUSE) for _ in range(count + 1))
    return Drop(at=at, name=name, files=files, pauses=pauses)


def _strikes(draw: random.Random, seconds: float) -> list[Strike]:
    strikes: list[Strike] = []
    at = draw.uniform(3.0, 10.0)
    while at < seconds:
        one, other = draw.sample(("triggerer", "triggerer-2"), 2)
        victims = (one, other) if len(strikes) % 4 == 1 else (one,)
        strikes.append(Strike(at=at, victims=victims, down=draw.uniform(*DOWN)))
        at += strikes[-1].down + draw.uniform(*ALONE)
    return strikes


def _fates(draw: random.Random) -> list[str]:
    """Draw planned ends: one in two to four is a failure, alternately after and before the model is written."""
    fates: list[str] = []
    for bad in islice(cycle((AFTER, BEFORE)), FAILURES):
        fates += [SUCCESS] * draw.randint(1, 3) + [bad]
    return fates
