"""`python -m retraining`: a long soak to run by hand: 200 batches, while triggerers die and trainings fail."""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
from pathlib import Path

from cluster.shell import Progress
from retraining.scene import scene, unmet
from retraining.schedule import Schedule
from retraining.soak import Soak

UNMET = 69  # EX_UNAVAILABLE
SECONDS_EACH = 4.0
"""Duration of writing batches, per batch."""

POLL = 5.0


def main() -> int:
    """Run the soak; return 1 if a batch has a problem, or too few trainings failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    arguments = parser.parse_args()
    if reason := unmet():
        sys.stderr.write(f"{reason}\n")
        return UNMET
    tell = Progress()
    tell(f"seed {arguments.seed}")
    seconds = SECONDS_EACH * arguments.count
    schedule = Schedule.drawn(arguments.seed, count=arguments.count, seconds=seconds)
    with (
        tempfile.TemporaryDirectory(prefix="ptjob-retraining-") as root,
        scene(Path(root), fates=schedule.fates, poll=POLL, tell=tell) as made,
    ):
        outcome = Soak(made, schedule, tell).run()
    sys.stdout.write("".join(f"{line}\n" for line in outcome.lines()))
    few = 10 * outcome.failed < len(outcome.trainings)
    return 1 if outcome.wrong or few else 0


if __name__ == "__main__":
    sys.exit(main())
