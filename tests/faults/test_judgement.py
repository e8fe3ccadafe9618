"""Tests of the judge of a trial: a judge that finds no problem would let every schedule pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from faults.evidence import Evidence, Life, OtherEvidence
from faults.fault import Traffic
from faults.judgement import MOST_REQUESTS, problems
from faults.program import Expected
from faults.proxy import Asked
from faults.schedule import Schedule, Story
from ptjob_provider.core.diagnosis import Diagnosis
from ptjob_provider.core.logs import LogCursor, LogLine
from ptjob_provider.core.run.outcome import JobOutcome, Outcome
from ptjob_provider.core.status import JobPhase, JobStatus


def line(number: int, text: str = "", *, notice: bool = False) -> LogLine:
    stamp = f"2026-11-20T10:00:00.{number:09}Z"
    cursor = LogCursor(pod_uid="u", container="pytorch", restart_count=0, timestamp=stamp, ordinal=0)
    return LogLine(text=text or f"run 0 line {number}", timestamp=stamp, cursor=cursor, notice=notice)


def life(first: int, end: int, *, after: int | None = None, **more: Any) -> Life:
    """Return a follower that reported these lines, after the preceding line or after line number `after`."""
    before = first - 1 if after is None else after
    began_after = f"run 0 line {before}" if before >= 0 else ""
    return Life(began_after=began_after, lines=[line(number) for number in range(first, end)], **more)


def run(number: int) -> list[LogLine]:
    """Return all lines of a run."""
    return [line(place, f"run {number} line {place}") for place in range(10)]


def evidence(*lives: Life, story: Story = Story.SUCCEEDS, **more: Any) -> Evidence:
    """Return the evidence of a job of ten lines, without problems by default."""
    schedule = replace(Schedule.draw(1), story=story, lines=10, faults=(), outages=(), stops=())
    outcome = Expected.of(schedule).outcome
    status = JobStatus(phase=JobPhase.SUCCEEDED)
    good = Evidence(
        schedule=schedule,
        seconds=1.0,
        lives=lives or (life(0, 10),),
        conclusion=JobOutcome(outcome=outcome, status=status),
        created=("s1-0a",),
        left=(),
        written=0,
        asked=(),
    )
    return replace(good, **more)


def asked(at: float, *, method: str = "GET", target: str = "/", traffic: Traffic = Traffic.REQUEST) -> Asked:
    return Asked(at=at, method=method, resource="pods", traffic=traffic, target=target)


JOBS = "/apis/kubeflow.org/v1/namespaces/n/pytorchjobs"
PODS = "/api/v1/namespaces/n/pods"
LATE = Life(lines=[*run(1), *run(0), *run(1)], notices=["lines since 10:00 may be repeated"])
NOT_KEPT = "lines since 10:00 may be repeated, and earlier ones may be missing"
DELETED = asked(0.0, method="DELETE", target=f"{JOBS}/s1-0a")


SAYS_IT_SUCCEEDED = JobOutcome(
    outcome=Outcome.SUCCEEDED, status=JobStatus(phase=JobPhase.SUCCEEDED), diagnosis=Diagnosis.unknown()
)


def other(**more: Any) -> OtherEvidence:
    """Return the evidence of another installation, without problems by default."""
    ended = JobOutcome(outcome=Outcome.SUCCEEDED, status=JobStatus(phase=JobPhase.SUCCEEDED))
    good = OtherEvidence(life=Life(), conclusion=ended, created=("s1-0b",), gone=(), orphans=("s1-0b",), asked=())
    return replace(good, **more)


@pytest.mark.parametrize(
    "seen",
    [
        evidence(),
        evidence(life(0, 4), life(4, 10)),
        evidence(life(0, 6), life(3, 10)),
        evidence(life(0, 5), story=Story.IS_DELETED, written=5),
        evidence(life(0, 3, notices=["what it wrote after 10:00 was lost"]), story=Story.IS_DELETED, written=5),
        evidence(life(0, 0), story=Story.HANGS),
        evidence(Life(lines=[*run(0), *run(1)]), story=Story.RESTARTS),
        evidence(Life(lines=[*run(0)[:4], *run(1)], notices=["was lost with it"]), story=Story.RESTARTS),
        evidence(Life(lines=[*run(0)[:4], *run(1), *run(1)], notices=[NOT_KEPT]), story=Story.RESTARTS),
        evidence(LATE, story=Story.RESTARTS),
        evidence(LATE, LATE.next(keeps_cursor=True), story=Story.RESTARTS),
        evidence(replace(LATE, began_after="run 0 line 3"), story=Story.RESTARTS),
        evidence(asked=[asked(second) for second in range(1000)]),
        evidence(story=Story.HANGS, gone=["s1-0a"], asked=[DELETED]),
        evidence(life(0, 5), story=Story.IS_DELETED, written=5, gone=["s1-0a"]),
        evidence(other=other()),
        evidence(other=other(asked=[asked(0.0, target=f"{JOBS}/s1-0a"), asked(1.0, target=PODS)])),
        evidence(other=other(), asked=[asked(0.0, method="PATCH", target=f"{JOBS}/s1-0a")]),
    ],
)
def test_allowed_evidence_is_no_problem(seen: Evidence) -> None:
    """Allowed are repeats after an older cursor, and a reported loss where a pod was deleted with its log."""
    assert problems(seen) == []


@pytest.mark.parametrize(
    ("seen", "word"),
    [
        (evidence(created=("s1-0a", "s1-0b")), "2 jobs"),
        (evidence(created=()), "0 jobs"),
        (evidence(left=("s1-0a-master-0",)), "still running"),
        (evidence(life(0, 10, error="KeyError: 'x'")), "died: KeyError"),
        (evidence(neighbours_error="KeyError: 'x'"), "neighbour's follower died: KeyError"),
        (evidence(conclusion=None), "no conclusion"),
        (evidence(story=Story.FAILS), "nobody is to blame"),
        (evidence(story=Story.FAILS, conclusion=SAYS_IT_SUCCEEDED), "not Failed"),
        (evidence(life(0, 9)), "ends after 9"),
        (evidence(life(0, 9, notices=["waited for"])), "ends after 9"),
        (evidence(life(0, 3), story=Story.IS_DELETED, written=5), "ends after 3"),
        (evidence(life(0, 4), life(5, 10, after=3)), "line 0 after 'run 0 line 3'"),
        (evidence(life(0, 4), life(3, 10, after=3)), "line 0 after 'run 0 line 3'"),
        (evidence(Life(lines=[line(n) for n in (*range(5), 4, *range(5, 10))])), "line 5 after ''"),
        (evidence(Life(lines=run(1)), story=Story.RESTARTS), "line 0 after ''"),
        (evidence(Life(lines=[*run(0), *run(1)[1:]], notices=["lost"]), story=Story.RESTARTS), "line 10 after ''"),
        (evidence(Life(lines=run(0), notices=["lost"]), story=Story.RESTARTS), "ends after 10"),
        (evidence(Life(lines=[*run(1)[:3], *run(0), *run(1)[3:]]), story=Story.RESTARTS), "line 0 after ''"),
        (evidence(asked=[asked(0.1 * number) for number in range(MOST_REQUESTS + 1)]), "requests within a minute"),
        (evidence(problem="it was not over"), "it was not over"),
        (evidence(gone=["s1-0a"]), "gone at the end: s1-0a"),
        (evidence(asked=[DELETED]), "deletions were asked for"),
        (evidence(other=other(created=())), "0 jobs were created for the other"),
        (evidence(other=other(gone=["s1-0b"])), "gone at the end: s1-0b"),
        (evidence(other=other(conclusion=None, life=Life(error="KeyError: 'x'"))), "KeyError"),
        (evidence(other=other(orphans=["s1-0a"])), "takes for nobody's: s1-0a"),
        (evidence(other=other(asked=[DELETED])), "ours was touched"),
        (
            evidence(other=other(asked=[asked(0.0, target=f"{PODS}/s1-0a-master-0/log?x=y", traffic=Traffic.LOG)])),
            "ours was touched",
        ),
        (evidence(other=other(), asked=[asked(0.0, method="PATCH", target=f"{JOBS}/s1-0b")]), "theirs was touched"),
    ],
)
def test_forbidden_evidence_is_a_problem(seen: Evidence, word: str) -> None:
    assert any(word in problem for problem in problems(seen)), problems(seen)
