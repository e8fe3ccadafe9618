"""Tests of reading a replica's log if its pod's status lacks the message, also from nodes that never answer.

The log is read before the replica is restarted or deleted.
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
from ptjob_provider.core.run.rank0_log import TAIL_WIDTH, Tail, last_lines, last_lines_of_run, with_last_lines
from ptjob_provider.core.shared import cancelled
from rows import each_row
from scripted_node import JOB, ScriptedNode, ScriptedRun, at
from scripted_node import REPLICA as POD

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from ptjob_provider.core.kubernetes.client.http import Client

pytestmark = pytest.mark.skips_waits

REF = JobRef(kind="TrainJob", namespace="team", name="digits", uid="u")
REPLICA = "digits-node-0-1"
PLACE = LogCursor(pod_uid="p", container="node", restart_count=0, timestamp="2026-11-20T10:00:00Z", ordinal=0)
WHY = Diagnosis.of(Cause.CRASH_LOOP, f"{REPLICA} exited with code 3", replica=REPLICA)


async def told(why: Diagnosis | None) -> Diagnosis | None:
    """Return the reason completed from a back-end's log."""
    backend = ScriptedBackend()
    backend.lines = [LogLine(text=text, timestamp=PLACE.timestamp, cursor=PLACE) for text in ("step 7", "token 1234")]
    async with asyncio.timeout(10):
        return await with_last_lines(backend, REF, why, mask=lambda text: text.replace("1234", "***"))


async def test_a_reason_without_lines_is_given_the_last_ones_of_its_replica() -> None:
    """Masked, and before the job is deleted: afterwards they cannot be read."""
    found = await told(WHY)

    assert found == replace(WHY, log_tail=("step 7", "token ***"))


async def test_a_reason_that_has_lines_or_names_nobody_stays_as_it_is() -> None:
    """The lines from the pod's status are enough."""
    known, nobodys = replace(WHY, log_tail=("known",)), replace(WHY, replica="")

    assert [await told(known), await told(nobodys), await told(None)] == [known, nobodys, None]


def test_of_a_progress_bar_the_diagnosis_has_the_last_state() -> None:
    """An exception is written right after it; before it there are thousands of characters of earlier states."""
    tail = Tail(mask=str)
    bar = "\r 10%|#| 1/10" * TAIL_WIDTH + "\r 20%|##| 2/10Traceback (most recent call last):"

    tail.take(LogLine(text=bar, timestamp=PLACE.timestamp, cursor=PLACE))

    assert list(tail.lines) == [" 20%|##| 2/10Traceback (most recent call last):"]


def test_the_last_lines_are_masked_before_they_are_cut() -> None:
    """Half a secret is not known as one."""
    tail = Tail(mask=lambda text: text.replace("secret", "***"))

    for text in ("a secret", "x" * (TAIL_WIDTH - 3) + "secret", "x" * TAIL_WIDTH):
        tail.take(LogLine(text=text, timestamp=PLACE.timestamp, cursor=PLACE))

    assert tail.lines == ("a ***", "x" * (TAIL_WIDTH - 3) + "***", "x" * TAIL_WIDTH)


class NodesBackend(ScriptedBackend):
    """Reads a replica's log as the back-end for a cluster does; all else follows the script: a job that runs."""

    def __init__(self, client: Client | ScriptedNode, cache: ScriptedNode) -> None:
        super().__init__()
        self.client, self.cache = cast("Any", client), cast("Any", cache)
        self.worlds = [Observation(job={**job("Running"), **JOB}, pods=[pod(POD, RUNS)])]

    def logs(
        self, ref: JobRef, replica: str, *, since: LogCursor | None = None, follow: bool = True
    ) -> AsyncGenerator[LogLine, None]:
        log = ReplicaLog(self.client, self.cache, ref, replica)
        return log.follow(since) if follow else log.snapshot(since)


RAISED = ScriptedRun(began=1, lines=[(2.0, "step 7\n"), (3.5, "ValueError: token 1234\n")], ended=True)
AGAIN = ScriptedRun(began=4, lines=[(4.7, "rank 1 of 2 ready\n")])


def the_end(*, count: int, second: int) -> Termination:
    finished_at = datetime.fromisoformat(at(second))
    return Termination(replica=POD, pod_uid="pod", container="pytorch", restart_count=count, finished_at=finished_at)


async def words(node: ScriptedNode, end: Termination) -> str:
    """Return the last lines of this run."""
    ref = replace(REF, kind="PyTorchJob")
    async with asyncio.timeout(600):
        return await last_lines_of_run(
            NodesBackend(node, node), ref, end, mask=lambda text: text.replace("1234", "***")
        )


async def test_the_last_words_of_a_run_are_read_while_the_next_one_runs() -> None:
    """From the node's previous log, from a minute before its end on; without lines of the next run."""
    node = ScriptedNode(runs=[RAISED, AGAIN])

    assert await words(node, the_end(count=0, second=3)) == "step 7\nValueError: token ***"
    assert ("true", "2026-11-20T09:59:03Z") in [(query.get("previous"), query.get("sinceTime")) for query in node.asked]


async def test_the_last_words_of_a_run_are_not_those_of_a_run_before_it() -> None:
    """A program that is killed at once writes nothing: the exception on the node belongs to another run."""
    assert await words(ScriptedNode(runs=[RAISED, ScriptedRun(began=4, ended=True)]), the_end(count=1, second=4)) == ""


async def test_lines_of_a_run_that_the_status_does_not_show_yet_are_not_those_of_the_run_before() -> None:
    """The status shows the restart a moment late; the log is then the next run's."""
    assert await words(ScriptedNode(runs=[RAISED, AGAIN], told=1), the_end(count=0, second=3)) == ""


async def test_last_words_that_cannot_be_read_are_none() -> None:
    """Neither a missing pod nor an unavailable server is an error of the job."""
    gone, away = ScriptedNode(runs=[RAISED], uid=None), ScriptedNode(runs=[RAISED])
    away.refusals = [ClusterUnavailable("no answer")] * 100

    assert [await words(node, the_end(count=0, second=3)) for node in (gone, away)] == ["", ""]


async def test_the_last_lines_of_a_replica_are_those_of_its_last_run() -> None:
    node = ScriptedNode(runs=[RAISED, AGAIN])

    assert await last_lines(NodesBackend(node, node), replace(REF, kind="PyTorchJob"), POD, mask=str) == (
        "rank 1 of 2 ready",
    )


# --- nodes that accept a request for a log and never answer it, behind a real socket: limits are of the loop's clock


SILENT_NAMESPACE, HEALTHY = "silent", "healthy"
A_FEW = 10.0
"""Seconds that an optional read may take."""


def ref_in(namespace: str, name: str = "digits") -> JobRef:
    return JobRef(kind="PyTorchJob", namespace=namespace, name=name, uid="job")


@asynccontextmanager
async def served(**settings: Any) -> AsyncIterator[tuple[StandInApiServer, NodesBackend]]:
    """Run a server whose nodes answer in one namespace only."""
    async with stand_in_api_server() as server:
        server.answers = lambda request: SILENT if f"/{SILENT_NAMESPACE}/" in request else (200, f"{at(2)} a line\n")
        async with shared_client(server.config(**settings)) as client:
            yield server, NodesBackend(client, ScriptedNode(runs=[ScriptedRun(began=1)]))


async def test_a_job_is_stopped_at_its_deadline_while_four_nodes_do_not_answer() -> None:
    """Neither are the jobs of these nodes kept from their own deadline."""
    async with served() as (server, backend):
        begun = replace(submission(), ranks={"digits-worker-0": 0, POD: 1})
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


ENDED = Termination(
    replica=POD, pod_uid="pod", container="pytorch", restart_count=0, finished_at=datetime.fromisoformat(at(3))
)


@each_row(
    ("read", "nothing"),
    [
        (lambda backend, ref: last_lines(backend, ref, POD, mask=str), ()),
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

    assert await last_lines(backend, ref_in(HEALTHY), POD, mask=str) == ()
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
            [line async for line in backend.logs(ref_in(SILENT_NAMESPACE), POD, follow=False)]

    assert clock() - began < 180


async def _first_line(backend: NodesBackend, namespace: str) -> str:
    async with aclosing(backend.logs(ref_in(namespace), POD)) as lines:
        async for line in lines:
            if not line.notice:
                return line.text
    raise AssertionError("the log has ended")
