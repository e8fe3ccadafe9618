"""Soak test: random schedules until the time is up; continues after an interruption."""

from __future__ import annotations

import json
import random
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from cluster.shell import write
from faults.judgement import problems
from faults.proxy import most_within
from faults.report import line, story
from faults.trials import AT_A_TIME, tried

if TYPE_CHECKING:
    from pathlib import Path

    from cluster.boot import Cluster

_SPAN = 10_000
"""Number of seeds reserved for one soak."""


@dataclass(kw_only=True)
class Soak:
    """State of one soak, as stored in its file.

    Attributes:
        base: the first seed is 10,000 times this.
        most: highest number of requests of one schedule within a minute.
        done: problems by seed.
    """

    base: int
    most: int = 0
    done: dict[int, list[str]] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Return the soak in progress, or a new one."""
        if not path.exists():
            return cls(base=random.SystemRandom().randint(1, 99_999))
        found = json.loads(path.read_text())
        done = {int(seed): wrong for seed, wrong in found["done"].items()}
        return cls(base=found["base"], most=found["most"], done=done)

    def save(self, path: Path) -> None:
        """Write the file."""
        write(path, json.dumps({"base": self.base, "most": self.most, "done": self.done}))

    def seeds(self, count: int) -> list[int]:
        """Return the seeds, of `count`, that have not run yet."""
        first = self.base * _SPAN
        return [seed for seed in range(first, first + count) if seed not in self.done]

    @property
    def failed(self) -> dict[int, list[str]]:
        """Return the problems of the schedules that failed, by seed."""
        return {seed: wrong for seed, wrong in self.done.items() if wrong}


async def run(cluster: Cluster, count: int, minutes: float) -> int:
    """Run the rest of the soak; return 1 if a schedule failed."""
    path = cluster.layout.cache / "soak.json"
    soak = Soak.load(path)
    left = soak.seeds(count)
    _say(f"soak {soak.base}: {len(soak.done)} of {count} schedules are done ({path})")
    end = time.monotonic() + 60 * minutes
    while left and time.monotonic() < end:
        batch, left = left[: 6 * AT_A_TIME], left[6 * AT_A_TIME :]
        async for evidence in tried(cluster, batch):
            wrong = problems(evidence)
            soak.done[evidence.schedule.seed] = wrong
            soak.most = max(soak.most, most_within(evidence.asked, 60))
            soak.save(path)
            _say("\n".join([line(evidence, wrong), *([story(evidence)] if wrong else [])]))
    return _concluded(soak, path, count)


def _concluded(soak: Soak, path: Path, count: int) -> int:
    figures = f"{len(soak.failed)} failed; at most {soak.most} requests a minute"
    _say(f"soak {soak.base}: {len(soak.done)} schedules, {figures}")
    for seed, wrong in soak.failed.items():
        _say(f"  {seed}: {wrong[0]}\n    PYTHONPATH=tests:. .venv/bin/python -m faults --replay {seed}")
    if not soak.seeds(count):
        path.unlink(missing_ok=True)
    return 1 if soak.failed else 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
