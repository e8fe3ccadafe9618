"""Measure the response time of `ptjob`, next to a bare Python, kubectl and Arena: `python -m benchmarks.command_line`.

The figures are medians of processes that run one after the other with a warm file cache. No limit is checked.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import meter
from cluster.binaries import ARENA
from cluster.boot import Cluster
from cluster.layout import Layout

RUNS = 15


def main() -> None:
    """Measure, and print a table."""
    with tempfile.TemporaryDirectory() as home:
        environment = {"PATH": os.environ["PATH"], "HOME": home}
        setup = f"{meter.machine()}, {meter.versions()}, medians of {RUNS}"
        sys.stdout.write(f"Measured {datetime.now(UTC):%Y-%m-%d}: {setup}.\n\n")
        sys.stdout.write("| command | seconds | of them computing |\n|---|---|---|\n")
        for name, command in contestants(Path(home)):
            times = [seconds(command, environment) for _ in range(RUNS + 1)][1:]
            whole, computing = (statistics.median(each) for each in zip(*times, strict=True))
            sys.stdout.write(f"| `{name}` | {whole:.2f} | {computing:.2f} |\n")


def contestants(home: Path) -> list[tuple[str, list[str]]]:
    """Return names and commands: those of this package, and the others that are installed on this machine."""
    ptjob = str(Path(sys.executable).with_name("ptjob"))
    commands = [
        ("python -c pass", [sys.executable, "-c", "pass"]),
        ("ptjob --help", [ptjob, "--help"]),
        ("ptjob submit --help", [ptjob, "submit", "--help"]),
        ("ptjob list (this machine, no jobs)", [ptjob, "--root", str(home / "jobs"), "list"]),
    ]
    arena = Cluster.of(Layout.of(os.environ)).programs.folder(ARENA) / "arena"
    if kubectl := shutil.which("kubectl"):
        commands.append(("kubectl --help", [kubectl, "--help"]))
    if arena.exists():
        commands.append(("arena --help", [str(arena), "--help"]))
    return commands


def seconds(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Return a process's duration and its CPU seconds, which depend less on other load of the machine."""
    began = time.perf_counter()
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command} ended with {process.returncode}")
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
