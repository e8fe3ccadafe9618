"""`python -m faults`: run some fault schedules, repeat one, or run as many as there is time for."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

from cluster import boot
from cluster.boot import Cluster
from cluster.layout import Layout
from cluster.shell import Progress
from faults import soak
from faults.judgement import problems
from faults.report import line, story
from faults.trials import tried

UNMET = 69  # EX_UNAVAILABLE


def main() -> int:
    """Run the command line; return 1 if a schedule failed."""
    arguments = _parser().parse_args()
    if reason := boot.unmet():
        sys.stderr.write(f"{reason}\n")
        return UNMET
    cluster = Cluster.of(Layout.of(os.environ))
    with cluster.borrowed(Progress()):
        if arguments.soak:
            return asyncio.run(soak.run(cluster, arguments.count, arguments.minutes))
        return asyncio.run(_try(cluster, [arguments.replay] if arguments.replay else arguments.seeds, arguments))


async def _try(cluster: Cluster, seeds: list[int], arguments: argparse.Namespace) -> int:
    failed = 0
    async for evidence in tried(cluster, seeds):
        found = problems(evidence)
        failed += bool(found)
        sys.stdout.write(f"{line(evidence, found)}\n")
        if found or arguments.replay:
            sys.stdout.write(f"{story(evidence)}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{len(seeds)} schedules, {failed} failed\n")
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seeds", type=_range, help="which schedules, such as 1-50")
    which.add_argument("--replay", type=int, metavar="SEED", help="one schedule again, with all that was seen")
    which.add_argument("--soak", action="store_true", help="random schedules; goes on where an earlier soak ended")
    parser.add_argument("--count", type=int, default=1000, help="of a soak")
    parser.add_argument("--minutes", type=float, default=180.0, help="after which a soak begins no schedule any more")
    return parser


def _range(text: str) -> list[int]:
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


if __name__ == "__main__":
    sys.exit(main())
