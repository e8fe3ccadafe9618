"""Samples a triggerer's cost and health from its two processes, its log, and Airflow's health check."""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from demo.rest import Health
    from demo.stack import Stack

BLOCKED = re.compile(r"async thread was blocked for ([\d.]+) seconds")
INTERVAL = 5.0
"""Seconds between two samples."""

PATIENCE = 1800.0
ANSWER_PATIENCE = 120.0


@dataclass(frozen=True, kw_only=True)
class Process:
    """One process: CPU seconds so far, resident bytes, private bytes, and open files."""

    cpu: float
    resident: int
    unique: int
    files: int

    @classmethod
    def of(cls, process: psutil.Process) -> Process:
        """Read the process."""
        times, memory = process.cpu_times(), process.memory_full_info()
        return cls(cpu=times.user + times.system, resident=memory.rss, unique=memory.uss, files=process.num_fds())


@dataclass(frozen=True, kw_only=True)
class Look:
    """A sample of the triggerer.

    Attributes:
        at: epoch seconds.
        status: its status in `/api/v2/monitor/health`.
        age: seconds since its last heartbeat.
        blocked: seconds of each blocking of its loop that Airflow has logged so far.
        parent: the process that reads the database and writes the logs.
        runner: the process whose loop all triggers share.
    """

    at: float
    status: str
    age: float
    blocked: Sequence[float]
    parent: Process
    runner: Process

    @classmethod
    def at_triggerer(cls, stack: Stack) -> Look:
        """Return a sample.

        Raises:
            StackFailed: a component has ended.
        """
        stack.check_alive()
        health = _health(stack)["triggerer"]
        parent = psutil.Process(stack["triggerer"].pid)
        (runner,) = parent.children()
        return cls(
            at=time.time(),
            status=health.status,
            age=time.time() - health.heartbeat,
            blocked=[float(each) for each in BLOCKED.findall(stack["triggerer"].log.read_text())],
            parent=Process.of(parent),
            runner=Process.of(runner),
        )


def _health(stack: Stack) -> Mapping[str, Health]:
    """Return the health that Airflow's API server reports; retry while the server is too busy to respond."""
    started_at = time.monotonic()
    while (health := stack.api.health()) is None:
        if time.monotonic() - started_at > ANSWER_PATIENCE:
            raise TimeoutError(f"the API server has not answered for {ANSWER_PATIENCE:.0f} s")
    return health


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A phase of the measurement, and the samples taken in it."""

    name: str
    looks: Sequence[Look]

    @classmethod
    def watched(cls, name: str, stack: Stack, is_over: Callable[[Look], bool]) -> Phase:
        """Sample repeatedly until the phase is over.

        Raises:
            TimeoutError: it did not end in time.
        """
        looks = [Look.at_triggerer(stack)]
        while not is_over(looks[-1]):
            if looks[-1].at - looks[0].at > PATIENCE:
                raise TimeoutError(f"after {PATIENCE:.0f} s it still goes on: {name}\n{stack['triggerer'].tail()}")
            time.sleep(INTERVAL)
            looks.append(Look.at_triggerer(stack))
        return cls(name=name, looks=looks)

    @property
    def seconds(self) -> float:
        """Duration of the phase."""
        return self.looks[-1].at - self.looks[0].at

    @property
    def ailments(self) -> Counter[str]:
        """Airflow's status in the samples in which the triggerer was not healthy."""
        return Counter(look.status for look in self.looks if look.status != "healthy")

    @property
    def oldest_heartbeat(self) -> float:
        """Maximum age of a heartbeat in the samples, in seconds."""
        return max(look.age for look in self.looks)

    @property
    def blocked(self) -> Sequence[float]:
        """Seconds of each blocking of the loop that Airflow logged."""
        return self.looks[-1].blocked[len(self.looks[0].blocked) :]

    @property
    def last(self) -> Look:
        """The last sample."""
        return self.looks[-1]

    def share_of_a_core(self, process: str) -> float:
        """Return the share of one core that `parent` or `runner` used."""
        before, after = (getattr(look, process) for look in (self.looks[0], self.looks[-1]))
        return (after.cpu - before.cpu) / max(self.seconds, 0.001)
