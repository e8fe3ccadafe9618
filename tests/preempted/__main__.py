"""`python -m preempted`: take trainings' pods away as schedules say, on a cluster of its own."""

from __future__ import annotations

import argparse
import asyncio
import collections
import os
import random
import sys
import time

from cluster import boot
from cluster.boot import Cluster
from cluster.layout import Layout
from cluster.shell import Progress
from preempted.judgement import problems, sentences
from preempted.trials import line, tried

UNMET = 69  # EX_UNAVAILABLE
NUMBER = 2
"""The cluster's number: tests that run meanwhile keep theirs."""


def main() -> int:
    """Run the command line; return 1 if a schedule failed."""
    parser = argparse.ArgumentParser(prog="python -m preempted", description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="number of schedules")
    parser.add_argument("--seed", type=int, help="the first one's seed; by default any")
    arguments = parser.parse_args()
    if reason := boot.unmet():
        sys.stderr.write(f"{reason}\n")
        return UNMET
    first = random.SystemRandom().randrange(10**6) if arguments.seed is None else arguments.seed
    cluster = Cluster.of(Layout.of(os.environ, number=NUMBER))
    with cluster.borrowed(Progress()):
        return asyncio.run(_run(cluster, first, arguments.count))


async def _run(cluster: Cluster, first: int, count: int) -> int:
    failed, said, unseen, outcomes, began = [], 0, 0, collections.Counter[str](), time.monotonic()
    _say(f"{count} schedules from seed {first} on")
    async for evidence in tried(cluster, range(first, first + count)):
        _say(line(evidence))
        said += sentences(evidence)
        unseen += evidence.unseen
        outcomes.update(
            f"{strike.by}: {came}" for strike, came in zip(evidence.schedule.strikes, evidence.outcomes, strict=False)
        )
        if problems(evidence):
            failed.append(evidence.schedule.seed)
    minutes = (time.monotonic() - began) / 60
    _say(
        f"{count} schedules in {minutes:.0f} min, {len(failed)} failed; {said} sentences about resume; {dict(outcomes)}"
    )
    for seed in failed:
        _say(f"  PYTHONPATH=tests:. .venv/bin/python -m preempted --count 1 --seed {seed}")
    return 1 if failed else 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
