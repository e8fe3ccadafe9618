"""Tests of gaps in a replica's log: reported ones and others.

A stand-in for the node rotates and restarts on demand.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptjob_provider.core.errors import ClusterUnavailable, InvalidSpec, JobNotFound
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.kubernetes.logs import ReplicaLog
from ptjob_provider.core.logs import LogCursor
from rows import each_row
from scripted_node import REPLICA, ScriptedNode, ScriptedRun, at
from skipped_waits import SkippingLoop

if TYPE_CHECKING:
    from ptjob_provider.core.logs import LogLine

pytestmark = pytest.mark.skips_waits

REF = JobRef(kind="PyTorchJob", namespace="team", name="digits", uid="job")


def run(*seconds: float, began: int = 1, ended: bool = True) -> ScriptedRun:
    """Return a run that wrote a line in each of these seconds."""
    return ScriptedRun(began=began, lines=[(second, f"at {second}\n") for second in seconds], ended=ended)


def place(second: float, *, restart_count: int = 0, pod_uid: str = "pod", ordinal: int = 0) -> LogCursor:
    """Return the cursor of this second's line."""
    return LogCursor(
        pod_uid=pod_uid, container="pytorch", restart_count=restart_count, timestamp=at(second), ordinal=ordinal
    )


def log_of(node: ScriptedNode) -> ReplicaLog:
    return ReplicaLog(cast("Any", node), cast("Any", node), REF, REPLICA)


async def followed(node: ScriptedNode, since: LogCursor | None = None) -> list[LogLine]:
    async with asyncio.timeout(3600):
        return [line async for line in log_of(node).follow(since)]


async def texts(node: ScriptedNode, since: LogCursor | None = None) -> list[str]:
    """Return the lines, with notices in brackets."""
    return [f"[{line.text}]" if line.notice else line.text for line in await followed(node, since)]


def gone(begin: str, end: str, why: str) -> str:
    """Return the notice of a gap."""
    what = f"what it wrote between {begin} and {end}, if anything, was gone at the node before it could be read"
    return f"[{REPLICA}: {what} ({why})]"


ROTATED, AGAIN = "its log had been rotated", "its container had been started again"


def whole(second: int) -> str:
    """Return the second as a pod's status has it."""
    return f"{at(second)[:19]}Z"


def again(second: int, number: int) -> str:
    """Return the notice before a run of a restarted container that began in this second."""
    return f"[{REPLICA}: its container was started again at {whole(second)}: run {number}]"


def repeated(second: int, missing: str = "") -> str:
    """Return the notice that lines since this second may follow once more."""
    why = "its container was started again, and the cluster reported it late"
    return f"[{REPLICA}: lines since {whole(second)} may be repeated{missing}: {why}]"


async def test_lines_that_were_rotated_away_are_reported() -> None:
    """The cursor's line is not in the file any more, so lines between it and the first one are missing."""
    node = ScriptedNode(runs=[run(9.0, 9.5)])

    assert await texts(node, place(2.5)) == [gone(at(2.5), at(9.0), ROTATED), "at 9.0", "at 9.5"]


async def test_a_file_that_was_rotated_at_the_end_is_reported() -> None:
    """Nothing followed the cursor's line, and that is gone too: lines between it and the end may be missing."""
    assert await texts(ScriptedNode(runs=[run()]), place(2.5)) == [gone(at(2.5), "its end", ROTATED)]


async def test_a_file_that_was_rotated_while_its_stream_was_broken_is_reported() -> None:
    """The next stream finds an empty file and ends normally, although the run has written more."""
    node = ScriptedNode(runs=[run(2.0, 2.5, ended=False)], breaks=[1000])
    node.changes = [lambda node: node.runs[0].lines.clear()]
    node.then = [_end]

    assert await texts(node) == ["at 2.0", "at 2.5", gone(at(2.5), "its end", ROTATED)]


@pytest.mark.parametrize(
    "since",
    [None, place(2.5, ordinal=-1), place(1.5, restart_count=1)],
    ids=["none", "a notice's", "a later run's"],
)
async def test_a_place_that_is_no_line_of_this_run_is_no_gap(since: LogCursor | None) -> None:
    """Nothing is known about lines before the first one that is there."""
    found = await texts(ScriptedNode(runs=[run(9.0)]), since)

    assert not any(text.startswith("[") for text in found)


async def test_the_last_line_of_the_run_before_is_no_gap() -> None:
    node = ScriptedNode(runs=[run(2.5), run(9.5, 9.7, began=9)])

    assert await texts(node, place(2.5, restart_count=0)) == [again(9, 2), "at 9.5", "at 9.7"]


async def test_a_restart_that_the_watch_has_missed_is_no_rotation() -> None:
    """The server is asked before the next run's lines are reported as the rest of a rotated log."""
    node = ScriptedNode(runs=[run(2.0, 3.0, ended=False), run(9.0, began=9)], told=1, is_blind=True)

    assert await texts(node, place(2.0)) == ["at 3.0", again(9, 2), "at 9.0"]


async def test_a_run_that_cannot_be_read_again_is_reported() -> None:
    node = ScriptedNode(runs=[run(2.0, 3.0, began=2), run(9.0, 10.5, began=9)], told=1, removes=True)

    assert await texts(node) == [
        "at 9.0",
        "at 10.5",
        repeated(2),
        gone(whole(2), whole(9), f"{AGAIN}, run 2"),
        "at 9.0",
        "at 10.5",
    ]


async def test_lines_of_an_older_run_than_the_last_two_are_repeated_from_the_run_before() -> None:
    """The status skipped the run whose lines were reported as the first one's."""
    node = ScriptedNode(runs=[run(2.0), run(9.0, began=4), run(19.0, began=18)])

    assert await texts(node, place(9.0)) == [
        repeated(4, ", and earlier ones may be missing"),
        "at 9.0",
        again(18, 3),
        "at 19.0",
    ]


@given(
    first=st.lists(st.integers(20, 39), min_size=1, max_size=4, unique=True).map(sorted),
    second=st.lists(st.integers(40, 59), min_size=1, max_size=4, unique=True).map(sorted),
    is_over=st.booleans(),
    is_seen=st.booleans(),
)
def test_no_line_is_missing_whenever_the_status_of_a_restart_comes(
    first: list[int], second: list[int], *, is_over: bool, is_seen: bool
) -> None:
    """The two runs may touch within a second; lines are in tenths of a second.

    Wherever the first reader was stopped, it and a reader that goes on have every line together.

    Args:
        first: lines of the first run.
        second: lines of the second run, which starts with its first one.
        is_over: the status shows that the first run is over, but not the second run.
        is_seen: the first run was read before the second one started.
    """
    runs = [run(*(each / 10 for each in first), began=2), run(*(each / 10 for each in second), began=second[0] // 10)]
    node = ScriptedNode(runs=runs[:1] if is_seen else runs, told=1)
    node.runs[0].ended = is_over
    node.then = [lambda node: node.runs.append(runs[1])] * is_seen

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        found = runner.run(followed(node))
        rests = [runner.run(texts(ScriptedNode(runs=runs), line.cursor)) for line in found]

    written = [text.strip() for each in runs for _, text in each.lines]
    again_from = max((number for number, line in enumerate(found) if "may be repeated" in line.text), default=-1)
    assert [line.text for line in found[again_from + 1 :] if not line.notice] == written
    assert [f"[{line.text}]" for line in found if line.notice][-1:] == [again(second[0] // 10, 2)]
    for number, rest in enumerate(rests, start=1):
        assert {line.text for line in found[:number]} | set(rest) >= set(written)


async def test_a_pod_that_goes_after_its_run_was_read_is_no_loss() -> None:
    """Its lines came before its end."""
    node = ScriptedNode(runs=[run(2.0, 3.0, ended=False)], told=1, removes=True)
    node.changes = [lambda node: setattr(node, "uid", None), *[lambda _: None] * 9]

    assert await texts(node) == ["at 2.0", "at 3.0"]


async def test_a_run_that_was_read_and_is_gone_is_no_loss() -> None:
    """Its stream ended with it, and the lines of the next run are new."""
    node = ScriptedNode(runs=[run(2.0, 3.0, began=2, ended=False)], told=1)

    def go_on(node: ScriptedNode) -> None:
        node.runs.append(run(9.0, 9.5, began=9))
        node.forgets = True

    node.then = [go_on]

    assert await texts(node) == ["at 2.0", "at 3.0", again(9, 2), "at 9.0", "at 9.5"]


async def test_lines_of_a_run_in_the_second_of_its_end_are_read_once() -> None:
    """The lines were its own, although the next run began within the same second."""
    first = run(3.1, 3.2, began=3, ended=False)
    node = ScriptedNode(runs=[first], told=1)
    node.then = [lambda node: node.runs.append(run(3.6, began=3))]

    assert await texts(node) == ["at 3.1", "at 3.2", again(3, 2), "at 3.6"]


async def test_no_line_is_missing_after_a_clock_was_set_back() -> None:
    """Earlier lines are served again behind it and appear twice."""
    node = ScriptedNode(runs=[run(30.0, 5.0, ended=False)])
    node.then = [lambda node: node.runs[0].lines.append((6.0, "at 6.0\n")), _end]

    found = await texts(node)

    assert found[:2] == ["at 30.0", "at 5.0"]
    assert found[-1] == "at 6.0"


async def test_runs_between_two_that_were_read_are_reported() -> None:
    """The node keeps the current run and the previous one."""
    node = ScriptedNode(runs=[run(2.0), run(5.0, began=4), run(7.0, began=6), run(9.0, began=8)])

    assert await texts(node, place(2.0)) == [
        gone(at(2.0), whole(6), f"{AGAIN}, run 3"),
        "at 7.0",
        again(8, 4),
        "at 9.0",
    ]


async def test_runs_that_nobody_has_ever_read_are_reported() -> None:
    """The container's restart count shows that there were earlier runs."""
    node = ScriptedNode(runs=[run(2.0), run(5.0, began=4), run(7.0, began=6)])

    assert await texts(node) == [gone(whole(0), whole(4), f"{AGAIN}, run 2"), "at 5.0", again(6, 3), "at 7.0"]


@pytest.mark.parametrize(("since", "begin"), [(None, whole(1)), (place(2.0), at(2.0))])
async def test_a_run_that_the_node_has_removed_is_reported(since: LogCursor | None, begin: str) -> None:
    """The kubelet keeps only the last run of a container that is not restarted."""
    words = 'previous terminated container "pytorch" in pod "digits-master-0" not found'
    node = ScriptedNode(runs=[run(2.0, 3.0), run(5.0, began=4)], refusals=[InvalidSpec(words)])

    assert await texts(node, since) == [gone(begin, whole(4), f"{AGAIN}, run 2"), "at 5.0"]


async def test_a_pod_that_the_watch_shows_after_its_jobs_end_is_read() -> None:
    """Pods are watched over another connection than jobs, which may have been reopened."""
    node = ScriptedNode(runs=[run(2.0, 3.0)], is_late=True, has_ended=True)

    assert await texts(node) == ["at 2.0", "at 3.0"]


async def test_a_pod_that_was_replaced_while_nobody_read_is_reported() -> None:
    """Lines after the last one were lost with it."""
    found = await texts(ScriptedNode(runs=[run(9.0, began=8)]), place(2.0, pod_uid="another"))

    assert found == [gone(at(2.0), whole(8), "its pod had been replaced"), "at 9.0"]


async def test_words_of_the_kubelet_are_no_line() -> None:
    """It may report that it cannot read a log in the log's place; the request is repeated."""
    node = ScriptedNode(runs=[run(2.0)], refusals=[b"unable to retrieve container logs for containerd://1a2b"])

    assert await texts(node) == ["at 2.0"]


async def test_a_gateways_400_does_not_mean_that_the_previous_runs_log_is_gone() -> None:
    node = ScriptedNode(
        runs=[run(2.0, 3.0), run(5.0, began=4, ended=True)], refusals=[InvalidSpec("<h1>400 Bad Request</h1>")]
    )

    assert [text for text in await texts(node) if text.startswith("at")] == ["at 2.0", "at 3.0", "at 5.0"]


@pytest.mark.parametrize("refusal", [ClusterUnavailable("no answer"), InvalidSpec("not there")])
async def test_the_rest_of_a_log_is_asked_for_again(refusal: Exception) -> None:
    """If the server is unavailable at the end of a run, no line is lost."""
    assert await texts(ScriptedNode(runs=[run(2.0)], refusals=[refusal, refusal])) == ["at 2.0"]


async def test_lines_that_came_before_an_answer_broke_are_returned() -> None:
    """The rest of the log is requested afterwards, so that two responses give the whole."""
    seconds = [2 + number / 100 for number in range(40)]
    node = ScriptedNode(runs=[run(*seconds)], breaks=[1000, 300, None])

    assert await texts(node) == [f"at {second}" for second in seconds]


JOB_GONE = "the job is gone, and its log with it, if there was one"
NO_ANSWER, NOT_THERE = ClusterUnavailable("no answer"), InvalidSpec("not there")


@each_row(
    ("node", "expected"),
    [
        ({"refusals": [NO_ANSWER] * 4}, ["at 2.0"]),
        ({"refusals": [NO_ANSWER] * 5}, ["no answer"]),
        ({"refusals": [NOT_THERE]}, ["at 2.0"]),
        ({"refusals": [NOT_THERE] * 5}, [f"team/{REPLICA}: not there"]),
        (
            {"shows_runs": False, "is_gone": True},
            [f"team/{REPLICA}: {JOB_GONE}"],
        ),
        ({"shows_runs": False}, []),
        ({"is_late": True, "has_ended": True}, ["at 2.0"]),
    ],
)
async def test_a_log_that_is_read_once_is_whole_or_says_why_not(node: dict[str, Any], expected: list[str]) -> None:
    """A short outage of the server is tolerated, and so is a gateway's reply that there is no log.

    The pod of a deleted job may have run meanwhile; the log of one that no watch has shown is requested.
    """
    try:
        found = [line.text async for line in log_of(ScriptedNode(runs=[run(2.0)], **node)).snapshot(None)]
    except (ClusterUnavailable, JobNotFound) as error:
        found = [str(error)]

    assert found == expected


async def test_the_rest_of_a_log_that_is_refused_for_good_is_reported() -> None:
    node = ScriptedNode(runs=[run(2.0)], refusals=[InvalidSpec("removed")] * 20)

    (notice,) = await texts(node)

    assert (
        "its log is not on its node any more; what it wrote after 2026-11-20T10:00:01Z, if anything, was lost with it"
        in notice
    )


async def test_a_server_that_stays_away_is_an_error() -> None:
    """Not a loss: the log may be there."""
    node = ScriptedNode(runs=[run(2.0)], refusals=[ClusterUnavailable("no answer")] * 20)

    with pytest.raises(ClusterUnavailable):
        await followed(node)


async def test_an_unfinished_last_line_of_a_pod_that_is_gone_is_returned() -> None:
    """The stream had it; it cannot be requested again."""
    node = ScriptedNode(runs=[run(2.0, ended=False)])
    node.runs[0].lines.append((3.0, "last words"))
    node.then = [lambda node: setattr(node, "uid", None)]

    found = await texts(node)

    assert found[:2] == ["at 2.0", "last words"]


async def test_an_unfinished_line_that_was_finished_meanwhile_comes_once() -> None:
    """The first stream had its beginning, the second all of it, and then the pod was gone."""
    node = ScriptedNode(runs=[run(2.0, ended=False)])
    node.runs[0].lines.append((3.0, "wor"))
    second = f"{at(2.0)} at 2.0\n{at(3.0)} word\nthe log cannot be read"
    node.refusals = [None, second.encode()]
    node.then = [lambda _: None, lambda node: setattr(node, "uid", None)]

    found = await texts(node)

    assert found[:2] == ["at 2.0", "word"]
    assert "its log is not on its node any more; what it wrote after" in found[2]
    assert len(found) == 3


async def test_a_run_that_is_over_costs_one_request() -> None:
    node = ScriptedNode(runs=[run(2.0)])

    await followed(node)

    assert ["follow" in query for query in node.asked] == [False]


def _end(node: ScriptedNode) -> None:
    node.runs[-1].ended = True
