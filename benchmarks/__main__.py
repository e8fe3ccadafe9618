"""`python -m benchmarks`: measure everything, print the page, and with `--write` put it into docs."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import meter, overhead, report
from benchmarks.contestants import PEERS, peer_version
from benchmarks.recovery import PAGE, kept
from benchmarks.report import figures
from benchmarks.run import SECTIONS, Run
from cluster.boot import Cluster
from cluster.layout import Layout
from cluster.shell import Progress

if TYPE_CHECKING:
    from benchmarks.results import Results

DOCS = Path(__file__).resolve().parent.parent / "docs"


def main() -> int:
    """Run the benchmarks on the command line."""
    arguments = parsed()
    meter.raise_file_limit(max(arguments.sizes))
    tell = Progress()
    cluster = Cluster.of(Layout.of(os.environ))
    with cluster.borrowed(tell), tempfile.TemporaryDirectory() as scratch:
        run = Run(cluster=cluster, sizes=arguments.sizes, quick=arguments.quick, scratch=Path(scratch), tell=tell)
        results = asyncio.run(run.through(arguments.sections))
        if "overhead" in arguments.sections:
            tell("the local back-end")
            results.overhead = overhead.page()
        page = report.page(results, most=max(arguments.sizes), machine=machine())
        sys.stdout.write(page)
        if arguments.write:
            PAGE.write_text(page + kept(PAGE.read_text()))
            draw(results, Path(scratch))
    return 0


def parsed() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--sizes", type=numbers, default=[1, 100, 1_000, 10_000], help="such as 1,100")
    parser.add_argument(
        "--sections", type=words, default=[*SECTIONS, "overhead"], help=f"of {', '.join(SECTIONS)}, overhead"
    )
    parser.add_argument("--quick", action="store_true", help="shorter looks: figures are rougher")
    parser.add_argument("--write", action="store_true", help="write docs/explanation/benchmarks.md and its plot")
    return parser.parse_args()


def numbers(text: str) -> list[int]:
    """Read numbers separated by commas, in ascending order."""
    return sorted(int(each) for each in text.split(","))


def words(text: str) -> list[str]:
    """Read names of sections.

    Raises:
        argparse.ArgumentTypeError: a section does not exist.
    """
    names = text.split(",")
    if unknown := set(names) - {*SECTIONS, "overhead"}:
        raise argparse.ArgumentTypeError(f"no such section: {', '.join(unknown)}")
    return names


def machine() -> dict[str, str]:
    """Return the machine and the versions of the measurement."""
    packages = ("apache-airflow", "apache-airflow-providers-cncf-kubernetes", "kubernetes-asyncio", "aiohttp")
    return {
        "Date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "Machine": meter.machine(),
        "Server": "Kubernetes 1.34.4, etcd 3.6.5 and training-operator 1.9.4 on the same machine",
        "Clients": f"{meter.versions(*packages)}, {peer_version()}",
    }


def draw(results: Results, scratch: Path) -> None:
    """Draw the plot in the environment of `make env-bench`, which has matplotlib."""
    file = scratch / "figures.json"
    file.write_text(json.dumps(figures(results)))
    program = Path(__file__).parent / "plot.py"
    subprocess.run((str(PEERS), str(program), str(file), str(DOCS / "images" / "benchmarks.svg")), check=True)


if __name__ == "__main__":
    sys.exit(main())
