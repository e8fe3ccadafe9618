"""What happens when: which batches are dropped, which triggerers die, how trainings end; all drawn from one seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import cycle, islice
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

SUCCESS, BEFORE, AFTER = "success", "fail before the model", "fail after the model"
BURST = 6
"""The most batches that are dropped together."""

FILES = 3
PAUSE = (0.0, 0.6)
"""Seconds between two files of a batch: others look meanwhile."""

FAILURES = 20
"""The most trainings that are made to fail."""

ALONE = (12.0, 40.0)
"""Seconds between two strikes."""

DOWN = (1.0, 15.0)
"""Seconds that a triggerer is away; every fourth time the other one dies with it."""


@dataclass(frozen=True, kw_only=True)
class Drop:
    """One batch.

    Attributes:
        at: seconds from the beginning.
        series: where.
        name: of its folder.
        files: what is in it.
        pauses: seconds before each file, and before its marker.
    """

    at: float
    series: str
    name: str
    files: Mapping[str, bytes]
    pauses: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Strike:
    """The end of a triggerer by SIGKILL, or of both.

    Attributes:
        at: seconds from the beginning.
        victims: whose.
        down: seconds until they are started again.
    """

    at: float
    victims: tuple[str, ...]
    down: float


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """One soak.

    Attributes:
        drops: in the order of their moments; names come in none.
        strikes: in the order of their moments.
        fates: how the n-th training that begins is to end; after the last one all succeed.
        seconds: how long batches are dropped and triggerers die.
    """

    drops: tuple[Drop, ...]
    strikes: tuple[Strike, ...]
    fates: tuple[str, ...]
    seconds: float

    @classmethod
    def drawn(cls, seed: int, *, series: Mapping[str, int], seconds: float) -> Self:
        """Draw one.

        Args:
            seed: what it is drawn from.
            series: how many batches are dropped where.
            seconds: see above.
        """
        draw = random.Random(seed)  # noqa: S311 - a schedule to be tried again, no secret
        drops = [drop for name, count in series.items() for drop in _drops(draw, name, count, seconds)]
        return cls(
            drops=tuple(sorted(drops, key=lambda drop: drop.at)),
            strikes=tuple(_strikes(draw, seconds)),
            fates=tuple(_fates(draw)),
            seconds=seconds,
        )


def _drops(draw: random.Random, series: str, count: int, seconds: float) -> list[Drop]:
    names = [f"batch-{number:04d}" for number in range(count)]
    draw.shuffle(names)
    drops: list[Drop] = []
    while len(drops) < count:
        at = draw.uniform(0.0, seconds)
        for name in names[len(drops) : len(drops) + draw.randint(1, BURST)]:
            drops.append(drop(draw, series, name, at))
            at += draw.uniform(0.0, 2.0)
    return drops


def drop(draw: random.Random, series: str, name: str, at: float) -> Drop:
    """Draw what is in a batch, and how slowly it is written."""
    count = draw.randint(1, FILES)
    files = {
        f"part-{number}.txt": "".join(f"{draw.random():.6f}\n" for _ in range(draw.randint(5, 40))).encode()
        for number in range(count)
    }
    pauses = tuple(draw.uniform(*PAUSE) for _ in range(count + 1))
    return Drop(at=at, series=series, name=name, files=files, pauses=pauses)


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
    """Draw some; of two to four one is a failure, in turn before and after the model was written."""
    fates: list[str] = []
    for bad in islice(cycle((AFTER, BEFORE)), FAILURES):
        fates += [SUCCESS] * draw.randint(1, 3) + [bad]
    return fates
