"""Tests of nodes that accept a request for a log and never answer it, behind a real socket.

The loop's clock jumps, so that the limits below are of its time and not of the machine's.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

import pytest

from api_server_stand_in import SILENT, STALLED, StandInApiServer, stand_in_api_server
from core.test_follow import NOON, RUNS, job, pod, submission
from fakes import ListSink, ScriptedBackend
from ptjob_provider.core.backend import Observation
from ptjob_provider.core.diagnosis import Cause, Diagnosis
from ptjob_provider.core.errors import ClusterUnavailable
from ptjob_provider.core.history import Termination
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.kubernetes.client.http import shared_client
from ptjob_provider.core.kubernetes.logs import ReplicaLog
from ptjob_provider.core.logs import LogCursor, LogLine
from ptjob_provider.core.run.follow import follow
from ptjob_provider.core.run.outcome import Outcome
from ptjob_provider.core.run.rank0_log import last_lines, last_lines_of_run, with_last_lines
from ptjob_provider.core.shared import cancelled
from rows import each_row
from scripted_node import JOB, REPLICA, ScriptedNode, ScriptedRun, at

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from ptjob_provider.core.kubernetes.client.http import Client

pytestmark = pytest.mark.skips_waits

SILENT_NAMESPACE, HEALTHY = "silent", "healthy"
A_FEW = 10.0
"""Seconds that an optional read may take."""


def ref_in(namespace: str, name: str = "digits") -> JobRef:
    return JobRef(kind="PyTorchJob", namespace=namespace, name=name, uid="job")


def running() -> ScriptedNode:
    """Return what the cluster says about a replica whose container runs."""
    return ScriptedNode(runs=[ScriptedRun(began=1)])


class ServedBackend(ScriptedBackend):
    """Reads logs over a real client; all else follows the script: a job that runs."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self.client = client
        self.worlds = [Observation(job={**job("Running"), **JOB}, pods=[pod(REPLICA, RUNS)])]

    def logs(
        self, ref: JobRef, replica: str, *, since: LogCursor | None = None, follow: bool = True
    ) -> AsyncGenerator[LogLine, None]:
        log = ReplicaLog(self.client, cast("Any", running()), ref, replica)
        return log.follow(since) if follow else log.snapshot(since)


@asynccontextmanager
async def served(**settings: Any) -> AsyncIterator[tuple[StandInApiServer, ServedBackend]]:
    """Run a server whose nodes answer in one namespace only."""
    async with stand_in_api_server() as server:
        server.answers = lambda request: SILENT if f"/{SILENT_NAMESPACE}/" in request else (200, f"{at(2)} a line\n")
        async with shared_client(server.config(**settings)) as client:
            yield server, ServedBackend(client)


async def test_a_job_is_stopped_at_its_deadline_while_four_nodes_do_not_answer() -> None:
    """Neither are the jobs of these nodes kept from their own deadline."""
    async with served() as (server, backend):
        begun = replace(submission(), ranks={"digits-worker-0": 0, REPLICA: 1})
        refs = [ref_in(SILENT_NAMESPACE, f"job-{number}") for number in range(4)] + [ref_in(HEALTHY)]
        clock = asyncio.get_running_loop().time
        began, deleted_at = clock(), dict[JobRef, float]()

        async def delete(ref: JobRef, *, version: str | None = None) -> None:
            deleted_at[ref] = clock() - began

        backend.delete = delete  # type: ignore[method-assign]
        timed: dict[str, Any] = {"deadline": NOON, "clock": lambda: NOON}
        followers = [follow(backend, replace(begun, ref=ref), sink=ListSink(), **timed) for ref in refs]
        outcomes = await asyncio.gather(*followers)

    assert [outcome.outcome for outcome in outcomes] == [Outcome.TIMED_OUT] * 5
    assert set(deleted_at) == set(refs)
    assert max(deleted_at.values()) <= A_FEW, deleted_at
    why = outcomes[-1].diagnosis
    assert why is not None
    assert why.log_tail == ("a line",)
    assert len(server.requests) >= 5


WHY = Diagnosis.of(Cause.CRASH_LOOP, f"{REPLICA} exited with code 3", replica=REPLICA)
ENDED = Termination(
    replica=REPLICA, pod_uid="pod", container="pytorch", restart_count=0, finished_at=datetime.fromisoformat(at(3))
)


@each_row(
    ("read", "nothing"),
    [
        (lambda backend, ref: last_lines(backend, ref, REPLICA, mask=str), ()),
        (lambda backend, ref: last_lines_of_run(backend, ref, ENDED, mask=str), ""),
        (lambda backend, ref: with_last_lines(backend, ref, WHY, mask=str), WHY),
    ],
)
async def test_an_optional_read_of_a_silent_node_is_given_up_within_seconds(
    read: Callable[..., Any], nothing: object
) -> None:
    async with served() as (_, backend):
        clock = asyncio.get_running_loop().time
        began = clock()
        found = await read(backend, ref_in(SILENT_NAMESPACE))

    assert found == nothing
    assert clock() - began <= A_FEW


async def test_a_log_that_never_ends_has_no_last_lines() -> None:
    """A node that sends a line now and then is given up as a silent one is."""
    backend = ScriptedBackend()
    place = LogCursor(pod_uid="pod", container="pytorch", restart_count=0, timestamp=at(2), ordinal=0)
    backend.lines = [LogLine(text="step", timestamp=at(2), cursor=replace(place, ordinal=n)) for n in range(10_000)]
    backend.seconds_between_lines = 1.0
    clock = asyncio.get_running_loop().time
    began = clock()

    assert await last_lines(backend, ref_in(HEALTHY), REPLICA, mask=str) == ()
    assert clock() - began <= A_FEW


async def test_a_silent_node_does_not_keep_the_stream_that_another_job_waits_for() -> None:
    """The headers of a response come before its first line, so that a node without any does not answer."""
    async with served(max_log_streams=1) as (server, backend):
        silent = asyncio.create_task(_first_line(backend, SILENT_NAMESPACE))
        while not server.requests:  # noqa: ASYNC110 - the stand-in has no event for it
            await asyncio.sleep(0.1)
        healthy = asyncio.create_task(_first_line(backend, HEALTHY))
        await asyncio.wait({healthy}, timeout=60)
        found = healthy.result() if healthy.done() else None
        await cancelled(silent, healthy)

    assert found == "a line"


@each_row("step", [SILENT, STALLED])
async def test_a_one_off_read_of_a_silent_node_is_an_error_within_minutes(step: int) -> None:
    """Whether it sends nothing at all or stops after the headers."""
    async with served() as (server, backend):
        server.answers = lambda _: step
        clock = asyncio.get_running_loop().time
        began = clock()
        with pytest.raises(ClusterUnavailable):
            [line async for line in backend.logs(ref_in(SILENT_NAMESPACE), REPLICA, follow=False)]

    assert clock() - began < 180


async def _first_line(backend: ServedBackend, namespace: str) -> str:
    async with aclosing(backend.logs(ref_in(namespace), REPLICA)) as lines:
        async for line in lines:
            if not line.notice:
                return line.text
    raise AssertionError("the log has ended")
