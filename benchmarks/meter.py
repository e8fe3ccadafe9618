"""Reads a process's CPU, memory and connections from Linux, and values from a server's metrics."""

from __future__ import annotations

import math
import os
import platform
import re
import resource
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Sequence

_SAMPLE = re.compile(r"(?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


SPARE_FILES = 500
"""Open files that a triggerer needs in addition to one log file per trigger."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes of one process: its proportional share of resident memory (PSS), the resident memory, and its peak."""

    pss: int
    rss: int
    peak: int


def raise_file_limit(triggers: int) -> None:
    """Raise the limit of open files for this process and its children to what a triggerer with these triggers needs."""
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < triggers + SPARE_FILES:
        raise SystemExit(f"`ulimit -n` is {limit} at most here; {triggers + SPARE_FILES} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))


def machine() -> str:
    """Describe this machine."""
    memory = psutil.virtual_memory().total / 2**30
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, Linux {platform.release().split('-')[0]}"


def versions(*packages: str) -> str:
    """Return the versions of Python and of packages."""
    return ", ".join([f"Python {platform.python_version()}", *(f"{name} {version(name)}" for name in packages)])


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process, with all its threads."""
    return sum(int(each.read_text().split()[0]) for each in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def memory(pid: int) -> Memory:
    """Return a process's current memory."""
    rollup, status = Path(f"/proc/{pid}/smaps_rollup").read_text(), Path(f"/proc/{pid}/status").read_text()
    return Memory(pss=_bytes(rollup, "Pss"), rss=_bytes(rollup, "Rss"), peak=_bytes(status, "VmHWM"))


def forget_peak(pid: int) -> None:
    """Reset the peak memory that Linux records for a process."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def connections(pid: int) -> int:
    """Return a process's number of open TCP connections."""
    sockets = psutil.Process(pid).net_connections("tcp")
    return sum(1 for each in sockets if each.status == psutil.CONN_ESTABLISHED)


def total(metrics: str, name: str, **labels: str) -> float:
    """Return the sum of a metric's samples with these labels, from a page in Prometheus' text format."""
    samples = (_SAMPLE.fullmatch(line) for line in metrics.splitlines() if line.startswith(name))
    return sum(
        float(sample["value"])
        for sample in samples
        if sample and sample["name"] == name and labels.items() <= dict(_LABEL.findall(sample["labels"] or "")).items()
    )


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest of the values that at least this percentage of them do not exceed; nan if there is none."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def _bytes(text: str, field: str) -> int:
    match = re.search(rf"^{field}:\s+(\d+) kB$", text, re.MULTILINE)
    return int(match[1]) * 1024 if match else 0
