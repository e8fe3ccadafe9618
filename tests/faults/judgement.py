"""Compare the evidence of a trial with what its schedule allows, and describe every problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faults.fault import Traffic
from faults.program import Expected
from faults.proxy import by_kind, most_within
from faults.schedule import Story
from ptjob_provider.core.run.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from faults.evidence import Evidence, Life
    from faults.proxy import Asked

MOST_REQUESTS = 150
"""Maximum in any minute, for one job with one follower at a time, and a neighbour.

Without faults a job needs about 15: create, get, two watches, a log stream, a few reads of events while the pod starts,
and of the pods that are left; twice that with the neighbour and the watches that both share. A fault costs one to three
more, and each new follower as many as the first; there are at most eleven faults, three stops and two outages, in which
pauses grow. A silent stream is opened again every 6 s here (every 150 s outside tests), which makes 10 in a minute for
each of four watches. A loop without a pause would send thousands of requests.
"""

_ABOUT_LOSS = ("lost", "gone", "cannot be read", "waited for", "earlier ones may be missing")


def problems(evidence: Evidence) -> list[str]:
    """Return all problems; an empty list if there are none."""
    if evidence.problem:
        return [evidence.problem, *_about_followers(evidence)]
    about_job = (_about_jobs, _about_deletions, _about_verdict, _about_lines)
    parts = (*about_job, _about_followers, _about_requests, _about_installations)
    return [problem for part in parts for problem in part(evidence)]


def _about_jobs(evidence: Evidence) -> Iterator[str]:
    if len(evidence.created) != 1:
        yield f"{len(evidence.created)} jobs were created for one task: {', '.join(evidence.created)}"
    if evidence.left:
        yield f"still running after the end: {', '.join(evidence.left)}"


def _about_deletions(evidence: Evidence) -> Iterator[str]:
    """Check deletions: a follower may only delete a job that is past its deadline."""
    story = evidence.schedule.story
    if evidence.gone and story not in {Story.IS_DELETED, Story.HANGS}:
        yield f"gone at the end: {', '.join(evidence.gone)}"
    deletions = [each.target for each in evidence.asked if each.method == "DELETE"]
    if deletions and story is not Story.HANGS:
        yield f"deletions were asked for: {', '.join(deletions)}"


def _about_installations(evidence: Evidence) -> Iterator[str]:
    """Check two installations with the same task in a namespace: each has one job, and neither touches the other's."""
    other = evidence.other
    if other is None:
        return
    if len(other.created) != 1:
        yield f"{len(other.created)} jobs were created for the other installation: {', '.join(other.created)}"
    if other.gone:
        yield f"of the other installation, gone at the end: {', '.join(other.gone)}"
    if other.conclusion is None or other.conclusion.outcome is not Outcome.SUCCEEDED:
        yield f"the other installation's job: {other.conclusion} {other.life.error}"
    if taken := {*other.orphans} & {*evidence.created}:
        yield f"the other installation takes for nobody's: {', '.join(sorted(taken))}"
    for whose, asked, names in (("ours", other.asked, evidence.created), ("theirs", evidence.asked, other.created)):
        if touched := [f"{each.method} {each.target}" for each in asked if _touches(each, names)]:
            yield f"{whose} was touched by the other: {', '.join(touched)}"


def _touches(asked: Asked, names: Sequence[str]) -> bool:
    """Return True if the request changes one of these jobs or its pods, or reads a pod's log."""
    if asked.method == "GET" and asked.traffic is not Traffic.LOG:
        return False
    parts = asked.target.partition("?")[0].split("/")
    return any(part == name or part.startswith(f"{name}-") for part in parts for name in names)


def _about_followers(evidence: Evidence) -> Iterator[str]:
    for number, life in enumerate(evidence.lives):
        if life.error:
            yield f"follower {number} died: {life.error}"
    if evidence.neighbours_error:
        yield f"the neighbour's follower died: {evidence.neighbours_error}"


def _about_verdict(evidence: Evidence) -> Iterator[str]:
    expected, found = Expected.of(evidence.schedule), evidence.conclusion
    if found is None:
        yield "no conclusion"
        return
    if found.outcome is not expected.outcome:
        yield f"the outcome is {found.outcome}, not {expected.outcome}: {found.detail or found.diagnosis}"
    replica = (found.diagnosis.replica if found.diagnosis else "") or ""
    if not replica.endswith(expected.failing_replica):
        yield f"{replica or 'nobody'} is to blame, not {expected.failing_replica}: {found.diagnosis}"


def _about_lines(evidence: Evidence) -> Iterator[str]:
    expected, last = Expected.of(evidence.schedule), evidence.lives[-1]
    for number, life in enumerate(evidence.lives):
        yield from _about_life(number, life, expected, is_last=life is last)
    found = last.in_order()
    reached = _place_after(found[-1] if found else last.began_after, expected)
    needed = len(expected.lines) if expected.whole else evidence.written
    if reached < needed and (expected.whole or not _tells_of_loss(last)):
        yield f"the log ends after {reached} lines of at least {needed}; told: {last.notices}"
    told_by_any = {line.text for life in evidence.lives for line in life.lines}
    missing = [text for text in expected.lines if text not in told_by_any]
    if expected.whole and missing and not any(_tells_of_loss(life) for life in evidence.lives):
        yield f"nobody told {missing[:3]} and {len(missing)} in all"


def _about_life(number: int, life: Life, expected: Expected, *, is_last: bool) -> Iterator[str]:
    """Compare with the lines after the follower's cursor: each line once, in order, and nothing else.

    Only the end of a run may be missing, if the next run follows and the loss is reported: when a pod has ended, its
    node keeps only the log of the last run. A stopped follower may also lack the run whose end it did not observe: the
    next follower reports it.
    """
    found, second = life.in_order(), list(expected.lines[expected.second_run :])
    due = list(expected.lines[_place_after(life.began_after, expected) :])
    if life.began_after in second:
        found = [text for text in found if text in second]
    if found == due[: len(found)] or (not is_last and found == second[: len(found)]):
        return
    at = next(place for place in range(len(found)) if found[: place + 1] != due[: place + 1])
    is_next_run = found[at:] == second[: len(found) - at]
    if not (is_next_run and _tells_of_loss(life)):
        place = f"follower {number}, line {at} after {life.began_after!r}"
        yield f"{place}: {found[at : at + 3]}, not {due[at : at + 3]}; told: {life.notices}"


def _place_after(text: str, expected: Expected) -> int:
    return expected.lines.index(text) + 1 if text in expected.lines else 0


def _tells_of_loss(life: Life) -> bool:
    return any(word in notice for notice in life.notices for word in _ABOUT_LOSS)


def _about_requests(evidence: Evidence) -> Iterator[str]:
    most = most_within(evidence.asked, 60)
    if most > MOST_REQUESTS:
        yield f"{most} requests within a minute: {by_kind(evidence.asked)}"
