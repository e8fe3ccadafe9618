"""`python -m kfp_cluster`: steps of pipelines on the tests' cluster, for a person: struck, or timed."""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
from datetime import datetime

from cluster import boot
from cluster.boot import Cluster
from cluster.layout import Layout
from cluster.shell import Progress
from cluster.step_image import STEP
from kfp_cluster.lab import Lab, lab_in, new_run
from kfp_cluster.step_pod import Try
from kfp_cluster.strike import struck

UNMET = 69  # EX_UNAVAILABLE
SPAN = 10_000
"""Number of seeds reserved for one soak."""


def main() -> int:
    """Run the requested command; return 1 if a job was left running."""
    arguments = _parser().parse_args()
    if reason := boot.unmet():
        sys.stderr.write(f"{reason}\n")
        return UNMET
    cluster = Cluster.of(Layout.of(os.environ))
    tell = Progress()
    with cluster.borrowed(tell), lab_in(cluster, STEP.ensure(cluster, tell)) as lab:
        return timed(lab, arguments.time) if arguments.time else soaked(lab, _seeds(arguments))


def soaked(lab: Lab, seeds: list[int]) -> int:
    """Run the schedules, print each outcome, and count the terminated steps that deleted their job in time."""
    outcomes = []
    for outcome in struck(lab, seeds):
        outcomes.append(outcome)
        _say(str(outcome))
    failed = [outcome for outcome in outcomes if outcome.wrong]
    by_run = [outcome for outcome in outcomes if outcome.left_to_run]
    for outcome in failed:
        _say(f"wrong: {outcome}")
    _say(f"{len(seeds)} steps, {len(failed)} left a live job or made two; {len(by_run)} jobs went only with their run")
    knew = [outcome for outcome in outcomes if outcome.knew]
    late = sorted(f"{outcome.schedule.alive:.2f}" for outcome in knew if outcome.left_to_run)
    _say(
        f"{len(knew)} terminated steps knew their job; {len(knew) - len(late)} had it deleted before their container "
        f"was over{''.join(f'; one had {seconds} s to live' for seconds in late)}"
    )
    return 1 if failed else 0


def timed(lab: Lab, count: int) -> int:
    """Print the time from the start of a step's container to its submitted job, for several steps in turn."""
    took = []
    for _ in range(count):
        run = new_run("timed")
        step = lab.start(Try(run=run))
        step.wait_for_notice(" was submitted: ")
        took.append(seconds_to_submission(step.log("--timestamps")))
        step.delete()
        lab.wait_until_gone(run)
        _say(f"{took[-1]:.2f} s")
    _say(f"{count} steps: {min(took):.2f} to {max(took):.2f} s, median {statistics.median(took):.2f} s")
    return 0


def seconds_to_submission(log: str) -> float:
    """Return the seconds from the start of a container's first process to the log line about the submission."""
    lines = log.splitlines()
    (began,) = [line for line in lines if "emissary: began" in line]
    (submitted,) = [line for line in lines if " was submitted: " in line]
    first, last = (datetime.fromisoformat(line.split(" ", 1)[0]) for line in (began, submitted))
    return (last - first).total_seconds() + float(began.split()[3])


def _seeds(arguments: argparse.Namespace) -> list[int]:
    if arguments.replay is not None:
        return [arguments.replay]
    base = random.SystemRandom().randint(1, 99_999) * SPAN
    return list(range(base, base + arguments.soak))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m kfp_cluster", description=__doc__)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--soak", type=int, metavar="COUNT", help="strike so many steps at random moments")
    which.add_argument("--replay", type=int, metavar="SEED", help="one schedule of a soak again")
    which.add_argument("--time", type=int, metavar="COUNT", help="how long so many steps take to submit their jobs")
    return parser


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
