"""Decide what is wrong in the evidence of a schedule. Pure."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

from preempted.program import CAUSES, OF_REASON, TOTAL, Line, starts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from preempted.schedule import Strike
    from preempted.trial import Evidence

_RESUMED = re.compile(
    r"attempt (\d+) resumed at step ([\d,]+) of ([\d,]+); (?:no step|([\d,]+) steps?)(?: \(.*\))? repeated"
)
_BEGAN = re.compile(r"attempt (\d+) began at step 0 although a checkpoint of step ([\d,]+) was there")


def problems(evidence: Evidence) -> list[str]:
    """Return everything that is wrong; [] if all is as it must be."""
    if evidence.problem or evidence.result is None:
        return [evidence.problem or "the task has no result"]
    return [*_attempts(evidence), *_alone(evidence), *_ends(evidence), *_checkpoints(evidence), *_sentences(evidence)]


def sentences(evidence: Evidence) -> int:
    """Return how often the log says where an attempt went on."""
    return sum(bool(_RESUMED.search(each) or _BEGAN.search(each)) for each in evidence.notices)


def _attempts(evidence: Evidence) -> Iterator[str]:
    """No attempt is lost, and none is doubled: one job each, which has run."""
    created = sorted(evidence.attempts.values())
    last = (evidence.result or {})["attempt"]
    if created != [*range(1, last + 1)]:
        yield f"jobs of the attempts {created} were created, and the result is of attempt {last}"
    ran = sorted({line.attempt for line in evidence.record})
    if ran != [*range(1, last + 1)]:
        yield f"the attempts {ran} ran, and the result is of attempt {last}"


def _alone(evidence: Evidence) -> Iterator[str]:
    """Two attempts never run at a time, by the program's own clock."""
    if evidence.together > 1:
        yield f"{evidence.together} jobs had not ended at a time"
    for attempt in sorted({line.attempt for line in evidence.record})[1:]:
        begin = min(line.at for line in evidence.record if line.attempt == attempt)
        late = [line for line in evidence.record if line.attempt < attempt and line.at > begin]
        if late:
            yield f"attempt {attempt} began before {late[-1]}"


def _ends(evidence: Evidence) -> Iterator[str]:
    """Each strike that ended a job is counted as the platform's, with its cause; nothing else is."""
    struck = [strike for strike, outcome in _struck(evidence) if outcome == "attempt"]
    counted = (evidence.result or {})["preemptions"]
    if not len(struck) == len(counted) + evidence.unseen == (evidence.result or {})["attempt"] - 1:
        yield f"{len(struck)} strikes ended a job, {evidence.unseen} unseen, and these are counted: {counted}"
    if len(struck) != len(counted):
        return
    for strike, lost in zip(struck, counted, strict=True):
        allowed = CAUSES.get(strike.by) or {OF_REASON[strike.reason]}
        if lost["cause"] not in allowed:
            yield f"{strike.by} is counted as {lost['cause']}"


def _struck(evidence: Evidence) -> list[tuple[Strike, str]]:
    return list(zip(evidence.schedule.strikes, evidence.outcomes, strict=True))


def _checkpoints(evidence: Evidence) -> Iterator[str]:
    """Each later attempt is given the checkpoint that was completed last."""
    for begin in _first_starts(evidence.record):
        saved = _saved_before(evidence.record, begin)
        name = f"step-{saved}.state" if saved else ""
        if begin.name != name:
            yield f"attempt {begin.attempt} was given {begin.name or 'nothing'}, and {name or 'nothing'} was saved last"
        elif name and not any(f"/{name} as PTJOB_RESUME_FROM" in each for each in evidence.notices):
            yield f"the log does not say that attempt {begin.attempt} gets {name}"


def _first_starts(record: Sequence[Line]) -> list[Line]:
    """Return how each attempt after the first began."""
    ordered = itertools.groupby(starts(record), key=lambda line: line.attempt)
    return [next(of_attempt) for attempt, of_attempt in ordered if attempt > 1]


def _saved_before(record: Sequence[Line], begin: Line) -> int:
    return next((line.step for line in reversed(record) if line.what == "saved" and line.at < begin.at), 0)


def _sentences(evidence: Evidence) -> Iterator[str]:
    """Each sentence about resume agrees with the record."""
    begins = {line.attempt: line for line in _first_starts(evidence.record)}
    for text in evidence.notices:
        found = _RESUMED.search(text) or _BEGAN.search(text)
        begin = begins.get(int(found[1])) if found else None
        if found and begin is None:
            yield f"attempt {found[1]} has not begun: {text}"
        elif found and begin is not None:
            numbers = [int((each or "0").replace(",", "")) for each in found.groups()]
            yield from _disagreement(evidence.record, begin, numbers, text)


def _disagreement(record: Sequence[Line], begin: Line, numbers: Sequence[int], text: str) -> Iterator[str]:
    attempt, step, *resumed = numbers
    if not resumed:
        if begin.step or step != _saved_before(record, begin):
            yield f"attempt {attempt} began after step {begin.step}: {text}"
        return
    last = _last_step(record, begin)
    if [begin.step, TOTAL, last - step] != [step, *resumed]:
        yield f"attempt {attempt} began after step {begin.step}, the one before had reached {last}: {text}"


def _last_step(record: Sequence[Line], begin: Line) -> int:
    return next((line.step for line in reversed(record) if line.what == "step" and line.at < begin.at), 0)
