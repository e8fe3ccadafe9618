"""Tests of reading a replica's log if its pod's status lacks the message: before it is restarted or deleted."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

import pytest

from fakes import ScriptedBackend
from ptjob_provider.core.diagnosis import Cause, Diagnosis
from ptjob_provider.core.errors import ClusterUnavailable
from ptjob_provider.core.history import Termination
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.kubernetes.logs import ReplicaLog
from ptjob_provider.core.logs import LogCursor, LogLine
from ptjob_provider.core.run.rank0_log import TAIL_WIDTH, Tail, last_lines, last_lines_of_run, with_last_lines
from scripted_node import REPLICA as POD
from scripted_node import ScriptedNode, ScriptedRun, at

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

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


class ScriptedNodesBackend(ScriptedBackend):
    """Reads a replica's log as the back-end for a cluster does, from a stand-in for its node."""

    def __init__(self, node: ScriptedNode) -> None:
        super().__init__()
        self.node = node

    def logs(
        self, ref: JobRef, replica: str, *, since: LogCursor | None = None, follow: bool = True
    ) -> AsyncGenerator[LogLine, None]:
        assert not follow
        return ReplicaLog(cast("Any", self.node), cast("Any", self.node), ref, replica).snapshot(since)


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
            ScriptedNodesBackend(node), ref, end, mask=lambda text: text.replace("1234", "***")
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
    backend = ScriptedNodesBackend(ScriptedNode(runs=[RAISED, AGAIN]))

    assert await last_lines(backend, replace(REF, kind="PyTorchJob"), POD, mask=str) == ("rank 1 of 2 ready",)
