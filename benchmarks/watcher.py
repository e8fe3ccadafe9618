"""Measures a watcher over ten thousand existing files: the first listing and all later ones.

`make bench-watcher` runs it on a directory and on a real S3 server. Our watcher and the usual alternatives run in
separate processes. Tables are printed, and with `--write` also written into docs/how-to/data-arrival.md. The exit code
is 0 only if our watcher never blocked its loop for 200 ms, not counting runs of Python's garbage collector.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import faulty_s3
import s3_server
from benchmarks import meter
from benchmarks.report import table
from benchmarks.watcher_run import Cost
from cluster.binaries import S3_SERVER, module_version
from cluster.shell import Progress
from installed import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PAGE = ROOT / "docs" / "how-to" / "data-arrival.md"
BEGIN, END = "<!-- measured by `make bench-watcher` -->\n", "<!-- end of what was measured -->\n"
MOST_LAG = 0.2
BUCKET = "training-data"
IN_A_BATCH = 10
NAMES = {
    "ours": "DataArrivalTrigger",
    "find": "a loop over fsspec's `find`, in a thread",
    "file-trigger": "Airflow's FileTrigger",
    "s3-key": "stand-in for the amazon provider's S3 trigger",
}


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Measurement of one watcher on one source."""

    name: str
    cost: Cost
    requests: float


def main() -> int:
    """Measure, print, and return 0 if our watcher never blocked its loop."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.watcher", description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--looks", type=int, default=20)
    parser.add_argument("--write", action="store_true", help="write the tables into docs/how-to/data-arrival.md")
    arguments = parser.parse_args()
    tell = Progress()
    with tempfile.TemporaryDirectory(prefix="ptjob-watcher-") as folder, store(tell) as (server, gateway):
        directory = Path(folder) / "incoming"
        fill(arguments.files, directory, server, tell)
        bucket = f"s3://{BUCKET}/incoming"
        sources = {
            f"a directory, {arguments.files // IN_A_BATCH:,} batches of {IN_A_BATCH} files": (
                str(directory),
                ("ours", "find", "file-trigger"),
            ),
            f"the same directory, each of {arguments.files:,} files a batch": (f"{directory}#files", ("ours",)),
            f"a bucket, {arguments.files // IN_A_BATCH:,} batches of {IN_A_BATCH} objects": (
                bucket,
                ("ours", "find", "s3-key"),
            ),
            f"the same bucket, each of {arguments.files:,} objects a batch": (f"{bucket}#files", ("ours",)),
        }
        bench = Bench(arguments.files, arguments.looks, server, gateway, tell)
        results = {
            title: [bench.measured(name, source) for name in names] for title, (source, names) in sources.items()
        }
    text = page(results, arguments.looks)
    sys.stdout.write(text)
    if arguments.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(before + BEGIN + text + END + rest.partition(END)[2])
    costs = [part[0].cost for part in results.values()]
    whole = max(max(cost.first_lag, cost.look_lag) for cost in costs)
    own = max(max(cost.first_own_lag, cost.look_own_lag) for cost in costs)
    sys.stdout.write(f"\nthe worst lag of our loop: {own * 1000:.0f} ms, allowed {MOST_LAG * 1000:.0f} ms;")
    sys.stdout.write(f" with Python's garbage collector {whole * 1000:.0f} ms\n")
    return int(own > MOST_LAG)


@contextlib.contextmanager
def store(tell: Callable[[str], None]) -> Iterator[tuple[s3_server.S3Server, faulty_s3.FaultyS3]]:
    """Start a real S3 server behind a gateway that counts requests."""
    with s3_server.running(tell) as server, faulty_s3.before(server) as gateway:
        server.files.mkdir(BUCKET)
        yield server, gateway


def fill(files: int, directory: Path, server: s3_server.S3Server, tell: Callable[[str], None]) -> None:
    """Write that many files into the directory and into the bucket, and the marker of each complete batch."""
    tell(f"writing {files:,} files and as many objects")
    content = b"x" * 100
    for batch in range(files // IN_A_BATCH):
        folder = directory / f"batch-{batch:05d}"
        folder.mkdir(parents=True)
        objects = {f"part-{number:03d}.npz": content for number in range(IN_A_BATCH)} | {"_SUCCESS": b""}
        for name, each in objects.items():
            (folder / name).write_bytes(each)
        prefix = f"{BUCKET}/incoming/{folder.name}"
        server.files.pipe({f"{prefix}/{name}": each for name, each in objects.items()})


@dataclass(frozen=True)
class Bench:
    """Setup shared by all watchers."""

    files: int
    looks: int
    server: s3_server.S3Server
    gateway: faulty_s3.FaultyS3
    tell: Callable[[str], None]

    def measured(self, name: str, source: str) -> Measured:
        """Measure one watcher; on a bucket, run it again for a few listings through the gateway that counts them."""
        self.tell(f"{NAMES[name]} on {source}")
        batches = self.files if source.endswith("#files") else self.files // IN_A_BATCH
        cost = ran(name, source, batches, self.looks, self.server.connection())
        requests = math.nan
        if source.startswith("s3:"):
            self.gateway.requests.clear()
            counted = ran(name, source, batches, 3, self.server.connection(self.gateway.endpoint))
            requests = self.gateway.requests.total() / counted.all_looks
        return Measured(name=name, cost=cost, requests=requests)


def ran(name: str, source: str, batches: int, looks: int, connection: str) -> Cost:
    """Run one watcher in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.watcher_run", name, source, str(batches), str(looks)]
    environment = {**os.environ, "AIRFLOW_CONN_STORE": connection, "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING"}
    with tempfile.TemporaryDirectory(prefix="ptjob-watcher-airflow-") as home:
        environment["AIRFLOW_HOME"] = home
        process = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=1800)
    return Cost(**json.loads(process.stdout.splitlines()[-1]))


def page(results: dict[str, Sequence[Measured]], looks: int) -> str:
    """Return the tables, below a line about the machine."""
    parts = [machine(looks)]
    for title, part in results.items():
        parts += [f"**{title[0].upper()}{title[1:]}**", table(HEADER, [row(each) for each in part])]
    return "\n\n".join(parts) + "\n\n"


def machine(looks: int) -> str:
    """Return the machine and the versions of the measurement."""
    server = module_version(S3_SERVER.folder / "go.mod", "github.com/versity/versitygw")
    return (
        f"Measured {datetime.now(UTC):%Y-%m-%d} with {looks} looks after the first one, a second apart: "
        f"{meter.machine()}, {meter.versions('apache-airflow', 's3fs', 'aiobotocore')}, "
        f"versitygw {server[1:]} on the same machine."
    )


HEADER = (
    *("", "first listing s", "all announced s", "CPU s", "worst lag ms", "without GC ms"),
    *("CPU ms a look", "lag ms", "without GC ms", "requests a look", "requests an hour"),
    *("memory MB", "peak MB", "watermark KB"),
)


def row(each: Measured) -> list[str]:
    """Return one line of a table; an hour has 60 listings at the default of 60 s."""
    cost = each.cost
    return [
        NAMES[each.name],
        f"{cost.first:.2f}",
        shown(cost.announced, ".1f"),
        f"{cost.first_cpu:.2f}",
        f"{cost.first_lag * 1000:.0f}",
        f"{cost.first_own_lag * 1000:.0f}",
        f"{cost.look_cpu * 1000:.0f}",
        f"{cost.look_lag * 1000:.0f}",
        f"{cost.look_own_lag * 1000:.0f}",
        shown(each.requests, ".0f"),
        shown(each.requests * 60, ".0f"),
        f"{cost.memory / 1e6:.1f}",
        f"{cost.peak / 1e6:.1f}",
        f"{cost.kept / 1e3:.0f}" if each.name == "ours" else "-",
    ]


def shown(value: float, form: str) -> str:
    """Return a number as text, or a dash for nan."""
    return "-" if math.isnan(value) else format(value, form)


if __name__ == "__main__":
    sys.exit(main())
