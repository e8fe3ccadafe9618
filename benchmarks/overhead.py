"""Measures the time from a job's request to its first process, and from its last process's end to the result.

It is a section of `make bench`, and checks no limit. The lower bound, a bare subprocess, is measured in the same run.
The jobs only record when they begin and end, so all of the time is overhead.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import report
from ptjob_provider.core.identity import Owner
from ptjob_provider.core.local.backend import LocalBackend
from ptjob_provider.core.local.config import LocalConfig
from ptjob_provider.core.run.follow import follow
from ptjob_provider.core.run.submit import ensure_submitted
from ptjob_provider.core.spec import TrainingJob

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.logs import LogLine
    from ptjob_provider.core.run.attempts import AttemptRecord

JOBS = 20
WORKERS = 2
PROGRAM = 'date +%s.%N > "$1/began-$RANK"; date +%s.%N > "$1/ended-$RANK"'


@dataclass(frozen=True, kw_only=True)
class Overhead:
    """One job's overhead: seconds before its first process and after its last one."""

    before: float
    after: float

    @classmethod
    def read(cls, *, requested_at: float, reported_at: float, folder: Path) -> Overhead:
        """Return the overhead, with the times that the processes wrote into the folder."""
        began = min(float(file.read_text()) for file in folder.glob("began-*"))
        ended = max(float(file.read_text()) for file in folder.glob("ended-*"))
        return cls(before=began - requested_at, after=reported_at - ended)


class Nowhere:
    """A sink and a store that discard everything."""

    def line(self, line: LogLine) -> None:
        """Discard it."""

    def notice(self, text: str) -> None:
        """Discard it."""

    async def room(self) -> None:
        """Return at once."""

    def load(self) -> AttemptRecord | None:
        """Return None: every job is a first attempt."""
        return None

    def save(self, record: AttemptRecord) -> None:
        """Discard it."""


def bare(scratch: Path) -> list[Overhead]:
    """Measure the lower bound: as many shells as a job has pods, started and awaited directly."""
    overheads = []
    for number in range(JOBS):
        folder = scratch / str(number)
        folder.mkdir(parents=True)
        requested_at = time.time()
        processes = [
            subprocess.Popen(["/bin/sh", "-c", PROGRAM, "sh", str(folder)], env={"RANK": str(rank)})
            for rank in range(WORKERS)
        ]
        for process in processes:
            process.wait()
        overheads.append(Overhead.read(requested_at=requested_at, reported_at=time.time(), folder=folder))
    return overheads


def through_core(scratch: Path) -> list[Overhead]:
    """Measure the core alone: submit and follow, as operator and trigger do."""
    return [asyncio.run(_submit_and_follow(scratch, number)) for number in range(JOBS)]


async def _submit_and_follow(root: Path, number: int) -> Overhead:
    config = LocalConfig(root=root)
    backend, owner = LocalBackend(config), Owner(instance="bench", ids={"job": str(number)}, labels={})
    job = TrainingJob.parse(
        name="bench",
        image="none",
        command=["sh", "-c", PROGRAM, "sh", "/out"],
        workers=WORKERS,
        volumes=[f"job-{number}:/out"],
        clean_pod_policy="None",
    )
    requested_at = time.time()
    submission = await ensure_submitted(backend, job, owner=owner, store=Nowhere())
    await follow(backend, submission, sink=Nowhere(), keep_running_pods=True)
    folder = config.claims_of("default") / f"job-{number}"
    return Overhead.read(requested_at=requested_at, reported_at=time.time(), folder=folder)


def through_airflow(scratch: Path) -> dict[str, list[Overhead]]:
    """Measure the operator, from `execute` until it returns or its trigger fires."""
    out = scratch / "out"
    out.mkdir(parents=True)
    dags = Path(__file__).parent / "dags"
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")},
        "AIRFLOW_HOME": str(scratch / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__PTJOB__BACKEND": "local",
        "AIRFLOW__PTJOB__LOCAL_ROOT": str(scratch / "jobs"),
        "OVERHEAD_OUT": str(out),
        "OVERHEAD_JOBS": str(JOBS),
        "OVERHEAD_WORKERS": str(WORKERS),
        "OVERHEAD_PROGRAM": PROGRAM,
    }
    _quietly([sys.executable, "-m", "airflow", "db", "migrate"], environment)
    _quietly([sys.executable, str(dags / "overhead_dag.py")], environment)
    claims = scratch / "jobs" / "claims" / "default"
    return {mode: [_read(out, claims, f"{mode}-{number}") for number in range(JOBS)] for mode in ("waits", "defers")}


def _read(out: Path, claims: Path, name: str) -> Overhead:
    requested_at, reported_at = (float((out / f"{name}.{what}").read_text()) for what in ("requested", "reported"))
    return Overhead.read(requested_at=requested_at, reported_at=reported_at, folder=claims / name)


def _quietly(command: list[str], environment: Mapping[str, str]) -> None:
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if process.returncode:
        output = f"{process.stdout[-5000:]}\n{process.stderr[-5000:]}"
        raise SystemExit(f"{command} ended with {process.returncode}\n{output}")


def measured() -> dict[str, list[Overhead]]:
    """Measure everything; the lower bound comes first."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        floor, core = bare(scratch / "bare"), through_core(scratch / "core")
        airflow = through_airflow(scratch / "operator")
    return {
        "bare subprocess": floor,
        "core on the local back-end": core,
        "operator that waits itself": airflow["waits"],
        "operator and trigger": airflow["defers"],
    }


def page() -> str:
    """Measure, and return the table with its explanation."""
    measurements = measured()
    floor = measurements["bare subprocess"]
    header = ["seconds", "to the first process", "slowest", "x floor", "to the verdict", "slowest", "x floor"]
    rows = [
        [name, *_figures(overheads, floor, "before"), *_figures(overheads, floor, "after")]
        for name, overheads in measurements.items()
    ]
    return f"{report.table(header, rows)}\n\nMedians of {JOBS} jobs of {WORKERS} replicas."


def _figures(overheads: list[Overhead], floor: list[Overhead], what: str) -> tuple[str, str, str]:
    values, lower_bound = [getattr(each, what) for each in overheads], [getattr(each, what) for each in floor]
    median = statistics.median(values)
    return f"{median:.3f}", f"{max(values):.3f}", f"{median / statistics.median(lower_bound):.0f}"
