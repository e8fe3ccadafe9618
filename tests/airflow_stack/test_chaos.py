"""Tests that stop, kill and freeze every component in turn while tasks are deferred; PostgreSQL and two triggerers.

A fixed seed determines the order and the times. While one component is disturbed, one task's job ends, so that
starting, waiting and resuming tasks are all affected.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
import time
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from typing import TYPE_CHECKING

import psutil
import pytest

import postgresql
from airflow_stack.conftest import lab_in
from cluster.fixtures import skip_because
from demo.processes import end_processes
from demo.stack import COMPONENTS
from ptjob_provider.core.identity import label_value
from ptjob_provider.core.kinds import PYTORCHJOB
from ptjob_provider.core.local.backend import LocalBackend
from ptjob_provider.core.local.config import LocalConfig
from task_run import runs, title, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_stack.conftest import Lab
    from task_run import TaskRun

logger = logging.getLogger(__name__)

SEED = 20261121
VICTIMS = (*COMPONENTS, "triggerer-2", "worker")
TASKS = len(VICTIMS) + 2
PATIENCE = 600
"""Seconds for a task to recover from a disturbance, and for components to become healthy, on a busy machine."""

SHORT, LONG = (1.0, 12.0), (34.0, 37.0)
"""Seconds of a freeze. After 30 s the other triggerer takes over, and Airflow gives up a frozen worker's task."""

LINE = re.compile(r"line (\d{6}) at (\d+\.\d+)")
BEGUN = re.compile(r"trigger .* starting")
WORKER = re.compile(r"airflow worker -- [0-9a-f-]{36}")
REPEATED = re.compile(r"── lines since (the beginning|\S{19})\S* may be repeated")

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, tell: Callable[[str], None]) -> Iterator[Lab]:
    """Start a stack on PostgreSQL with two triggerers, configured to detect a lost component within seconds."""
    skip_because(postgresql.unmet())
    impatience = {
        "SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "2",
        "SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "10",
        "SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "5",
        "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
        "TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "30",
        "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
        # on a busy machine an API server takes longer to start than a worker's default five tries
        "WORKERS__EXECUTION_API_RETRIES": "15",
        "WORKERS__EXECUTION_API_RETRY_WAIT_MAX": "8",
    }
    root = tmp_path_factory.mktemp("chaos")
    with postgresql.database(tell) as address, lab_in(root, database_url=address, **impatience) as lab:
        lab.stack.add("triggerer", "triggerer-2")
        yield lab


@dataclass(frozen=True)
class Training:
    """A deferred task whose job counts until it is released."""

    lab: Lab
    name: str
    task: TaskRun

    @classmethod
    def start(cls, lab: Lab, name: str) -> Training:
        """Start it with three retries."""
        return cls(lab, name, lab.start("defer_3", "count", name))

    @property
    def beginnings(self) -> int:
        """The number of times its program was started."""
        begun = self.lab.work / f"{self.name}.begun"
        return len(begun.read_text().splitlines()) if begun.exists() else 0

    @property
    def expected(self) -> list[int]:
        """The numbers that its program printed."""
        return list(range(int((self.lab.work / f"{self.name}.lines").read_text())))

    @property
    def uids(self) -> list[str]:
        """The uids of its jobs."""
        backend = LocalBackend(LocalConfig(root=self.lab.root))
        of_run = {"run_id": label_value(self.task.run_id)}
        return [job["metadata"]["uid"] for job in asyncio.run(backend.list(PYTORCHJOB.KIND, "default", of_run))]

    def release(self) -> None:
        """Release its job, at least half a second after its program started."""
        until(lambda: self.beginnings, timeout=PATIENCE, what=f"the beginning of {self.name}")
        time.sleep(0.5)
        self.lab.release(self.name)


@dataclass(frozen=True)
class Log:
    """The log of one try, as Airflow's UI shows it."""

    lines: list[str]

    @property
    def numbers(self) -> Counter[int]:
        """The number of occurrences of each numbered line."""
        return Counter(int(found[1]) for found in map(LINE.fullmatch, self.lines) if found)

    @property
    def repeated(self) -> list[int]:
        """The numbers that occur more than once."""
        return [number for number, count in self.numbers.items() if count > 1]

    @property
    def had_two_readers(self) -> bool:
        """True if Airflow gave the task to a second triggerer while the first still had it (delayed heartbeats)."""
        at_once = accumulate(bool(BEGUN.match(line)) - (line == "trigger completed") for line in self.lines)
        return max(at_once, default=0) > 1

    @property
    def unmarked(self) -> list[int]:
        """The repeated numbers that were printed earlier than any notice about repeats in the log says."""
        since = min(
            (began(found[1]) for found in map(REPEATED.match, self.lines) if found),
            default=float("inf"),
        )
        printed_at = {int(found[1]): float(found[2]) for found in map(LINE.fullmatch, self.lines) if found}
        return [number for number in self.repeated if printed_at[number] < since - 1]


def began(text: str) -> float:
    """Return the time from which on lines may be repeated, in Unix seconds."""
    return 0.0 if text == "the beginning" else datetime.fromisoformat(f"{text}Z").timestamp()


class Restart:
    """SIGTERM and a new start, as in a rolling deployment."""

    def component(self, lab: Lab, name: str, _: random.Random) -> None:
        lab.stack[name].restart(grace=60)

    def worker(self, process: psutil.Process, _: random.Random) -> None:
        process.terminate()


class Kill:
    """SIGKILL of the process and its children, as when a machine is lost, and a new start."""

    def component(self, lab: Lab, name: str, _: random.Random) -> None:
        lab.stack[name].kill()
        lab.stack[name].start()

    def worker(self, process: psutil.Process, _: random.Random) -> None:
        end_processes([process], grace=0)


class Freeze:
    """Suspend for a while, as when a virtual machine is paused, then resume."""

    def component(self, lab: Lab, name: str, rng: random.Random) -> None:
        lab.stack[name].freeze()
        time.sleep(rng.uniform(*(LONG if name.startswith("triggerer") else SHORT)))
        lab.stack[name].thaw()

    def worker(self, process: psutil.Process, rng: random.Random) -> None:
        process.suspend()
        time.sleep(rng.uniform(*SHORT))
        if process.is_running():
            process.resume()


def disturb(lab: Lab, how: Restart | Kill | Freeze, victim: str, rng: random.Random) -> None:
    """Disturb a component, or the worker process that picks up the task whose job just ended."""
    if victim != "worker":
        time.sleep(rng.uniform(0, 4))
        how.component(lab, victim, rng)
        return
    found: list[psutil.Process] = []
    until(lambda: found.extend(workers(lab)) or found, timeout=PATIENCE, what="a worker's process", interval=0.02)
    time.sleep(rng.uniform(0, 1))
    with contextlib.suppress(psutil.NoSuchProcess):
        how.worker(found[0], rng)


def workers(lab: Lab) -> list[psutil.Process]:
    """Return the processes that run a task.

    An idle process of the executor is left out: it holds the lock of the queue, and all others would hang.
    """
    return [process for process in lab.stack["scheduler"].processes() if WORKER.match(title(process))]


def go_through(lab: Lab, how: Restart | Kill | Freeze) -> list[Training]:
    """Start the tasks, disturb every component once while they start, wait and end, and wait until all succeed."""
    rng = random.Random(f"{SEED} {type(how).__name__}")  # noqa: S311 - reproducible, not a secret
    order = rng.sample(VICTIMS, len(VICTIMS))
    trainings = [Training.start(lab, f"{type(how).__name__.lower()}-{number}") for number in range(TASKS)]
    for training, victim in zip(trainings, order, strict=False):
        time.sleep(rng.uniform(0, 4))
        training.release()
        logger.info("%s of %s, while %s ends", type(how).__name__, victim, training.name)
        disturb(lab, how, victim, rng)
    lab.stack.wait_healthy(timeout=PATIENCE)
    for training in trainings:
        training.release()
    states = [training.task.wait(timeout=PATIENCE) for training in trainings]
    assert states == ["success"] * TASKS
    return trainings


def log_of(training: Training) -> Log:
    """Return the log of the last try; check that the program ran once, nothing still runs and no line is missing."""
    ref = training.task.ref
    assert training.beginnings == 1, f"{training.name} was trained {training.beginnings} times"
    assert training.uids == [ref.uid]
    assert not runs(ref)
    log = Log(training.task.lines(training.task.now["try_number"]))
    assert sorted(log.numbers) == training.expected, f"{training.name} has lost lines"
    return log


def test_a_rolling_restart_of_everything_costs_no_line_and_repeats_none(lab: Lab) -> None:
    trainings = go_through(lab, Restart())

    for training in trainings:
        log = log_of(training)
        assert log.unmarked == [], f"{training.name} repeats lines that no mark covers"
        assert log.repeated == [] or log.had_two_readers, f"{training.name} repeats lines"


@pytest.mark.parametrize("how", [Kill, Freeze])
def test_killed_or_frozen_processes_lose_no_line_and_repeated_lines_are_marked(
    lab: Lab, how: type[Kill | Freeze]
) -> None:
    trainings = go_through(lab, how())

    for training in trainings:
        assert log_of(training).unmarked == [], f"{training.name} repeats lines that no mark covers"
