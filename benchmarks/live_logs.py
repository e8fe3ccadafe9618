"""Measures how many lines per second reach the task's log, and how many requests following takes from the API server.

All writers that use Airflow run in Airflow's own triggerer (`bare_triggerer`): runner, supervisor, and a log file for
each trigger. A line has arrived when it is in that file.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import yaml

from benchmarks import real_jobs, requests_made
from benchmarks.contender import Assignment
from benchmarks.polling import until
from benchmarks.process import running
from benchmarks.triggerer_run import ordered, triggerer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.apiserver import ApiServer
    from benchmarks.process import Kind
    from benchmarks.waiting import User
    from ptjob_provider.core.run.submit import Submission

OURS = "ptjob_provider.airflow.triggers.PyTorchJobTrigger"
POD_TRIGGER = "airflow.providers.cncf.kubernetes.triggers.pod.KubernetesPodTrigger"
OF_BENCHMARK = "benchmarks.contenders.airflow_process"

_WORD = b" of a log of a training program"
_PATIENCE = 300.0


@dataclass(frozen=True, kw_only=True)
class Written:
    """Measurement of one writer.

    Attributes:
        seconds: from the first line's arrival to the last one's.
        late: lag of the triggerer's loop meanwhile, by measurement; empty if there is no loop.
        cpu: cores used meanwhile, by supervisor and runner together.
    """

    writer: str
    lines: int
    seconds: float
    late: Sequence[float] = ()
    cpu: float = float("nan")


@dataclass(frozen=True, kw_only=True)
class Followed:
    """Requests to the API server while the logs of running jobs were followed for so many seconds.

    Attributes:
        opened: requests until all were followed.
        opened_logs: those among them that read a log.
        later: requests after that.
        later_logs: those among them that read a log.
    """

    follower: str
    jobs: int
    seconds: float
    opened: float
    opened_logs: float
    later: float
    later_logs: float

    @property
    def per_job_hour(self) -> float:
        """Log requests for one job that runs for an hour."""
        return (self.opened_logs + self.later_logs * 3600 / self.seconds) / self.jobs


def our_trigger(submission: Submission, user: User, log: str) -> dict[str, Any]:
    """Return the specification of our trigger, as the operator creates it."""
    return ordered(
        OURS,
        log,
        submission=submission.to_dict(),
        kubernetes_conn_id=None,
        config_file=str(user.kubeconfig),
        deferred_at=datetime.now(UTC).isoformat(),
    )


def pod_trigger(submission: Submission, user: User, log: str, *, logging_interval: int) -> dict[str, Any]:
    """Return the specification of KubernetesPodOperator's trigger, as that operator creates it, for a job's rank 0."""
    return ordered(
        POD_TRIGGER,
        log,
        pod_name=submission.rank0,
        pod_namespace=submission.ref.namespace,
        trigger_start_time=datetime.now(UTC).isoformat(),
        base_container_name="pytorch",
        config_dict=yaml.safe_load(user.kubeconfig.read_text()),
        in_cluster=False,
        logging_interval=logging_interval,
    )


def bare_logger(lines: int, log: str) -> dict[str, Any]:
    """Return the specification of a trigger that only passes the same lines to Airflow's logger."""
    return ordered(f"{OF_BENCHMARK}.LinesTrigger", log, lines=lines, text=real_jobs.TEXT)


def lag_trigger(file: Path) -> dict[str, Any]:
    """Return the specification of a trigger that measures the loop's lag and writes it to the file."""
    return ordered(f"{OF_BENCHMARK}.LagTrigger", "lag.log", file=str(file))


def looks(file: Path, since: float, until_: float) -> list[float]:
    """Return the lags, in seconds, that a `LagTrigger` has measured between two times."""
    measurements = (line.split() for line in file.read_text().splitlines())
    return [float(late) for at, late in measurements if since <= float(at) <= until_]


def lines_in(log: Path) -> int:
    """Return how many of the benchmark's lines a log file has."""
    return log.read_bytes().count(_WORD) if log.exists() else 0


async def through_triggerer(writer: str, order: dict[str, Any], lines: int, scratch: Path) -> Written:
    """Let a trigger write its lines; return the measurement."""
    lag = scratch / "lag"
    async with triggerer([order, lag_trigger(lag)], scratch) as run:
        log = _Growing(run.logs / order["log"])
        await until(f"the first line of {writer}", log.has_lines(1), patience=_PATIENCE, every=0.01)
        began_at, began, used = time.monotonic(), time.time(), sum(run.cpu_seconds)
        await until(f"the last line of {writer}", log.has_lines(lines), patience=_PATIENCE, every=0.02)
        seconds = time.monotonic() - began_at
        cpu = (sum(run.cpu_seconds) - used) / seconds
        await asyncio.sleep(1.5)  # until the last second's measurements are written
    late = looks(lag, began, began + seconds)
    return Written(writer=writer, lines=lines, seconds=seconds, late=late, cpu=cpu)


async def through_kubectl(kubectl: str, submission: Submission, user: User, lines: int) -> Written:
    """Let `kubectl logs --follow` write the lines to a pipe."""
    words = ("logs", "--follow", submission.rank0, "--namespace", submission.ref.namespace)
    process = await asyncio.create_subprocess_exec(
        kubectl, "--kubeconfig", str(user.kubeconfig), *words, stdout=asyncio.subprocess.PIPE
    )
    if process.stdout is None:
        raise AssertionError("its output was asked for")
    count, began_at = 0, 0.0
    try:
        async with asyncio.timeout(_PATIENCE):
            while count < lines:
                count += (await process.stdout.read(65536)).count(_WORD)
                began_at = began_at or time.monotonic()
    finally:
        process.kill()
        await process.wait()
    return Written(writer="kubectl logs --follow", lines=lines, seconds=time.monotonic() - began_at)


async def following(
    kind: Kind, server: ApiServer, submissions: Sequence[Submission], user: User, *, seconds: float, scratch: Path
) -> Followed:
    """Let a contender follow running jobs for a while; return its requests."""
    names = [each.rank0 for each in submissions]
    assignment = Assignment(
        kubeconfig=str(user.kubeconfig),
        namespace=submissions[0].ref.namespace,
        names=names,
        submissions=[each.to_dict() for each in submissions],
        options={"container": "pytorch", "logging_interval": 10},
    )
    async with running(kind, assignment, scratch) as contender:
        counts = [await requests_made.read(server, user.counted_as)]
        contender.go()
        await asyncio.sleep(15.0)
        counts.append(await requests_made.read(server, user.counted_as))
        await asyncio.sleep(seconds)
        counts.append(await requests_made.read(server, user.counted_as))
    opened, later = counts[1] - counts[0], counts[2] - counts[1]
    return Followed(
        follower=kind.name,
        jobs=len(names),
        seconds=seconds,
        opened=opened.of_user + opened.logs,
        opened_logs=opened.logs,
        later=later.of_user + later.logs,
        later_logs=later.logs,
    )


class _Growing:
    """Counts the benchmark's lines in a growing log file, of which a record may contain several."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._offset = 0
        self._rest = b""
        self._lines = 0

    def has_lines(self, number: int) -> Any:
        """Return a function that checks whether the file has that many lines."""

        async def are_there() -> bool:
            self._read_new()
            return self._lines >= number

        return are_there

    def _read_new(self) -> None:
        if not self._file.exists():
            return
        with self._file.open("rb") as log:
            log.seek(self._offset)
            new = log.read()
        self._offset += len(new)
        text = self._rest + new
        self._lines += text.count(_WORD)
        self._rest = text[-len(_WORD) + 1 :]
