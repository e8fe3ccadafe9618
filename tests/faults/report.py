"""Text reports of a schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faults.proxy import by_kind, most_within

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faults.evidence import Evidence


def line(evidence: Evidence, problems: Sequence[str]) -> str:
    """Return one line about the result; of a failed schedule, also the problems and the command that repeats it."""
    schedule = evidence.schedule
    requests = most_within(evidence.asked, 60)
    figures = f"{evidence.seconds:5.1f} s, {len(evidence.lives)} followers, {requests:3} requests a minute"
    head = f"{schedule.seed:>9} {schedule.story:16} {figures}"
    if not problems:
        return f"{head}, good"
    again = f"PYTHONPATH=tests:. .venv/bin/python -m faults --replay {schedule.seed}"
    return "\n    ".join([f"{head}, FAILED", *problems, again])


def story(evidence: Evidence) -> str:
    """Return all details: the planned faults, the requests at the proxy, and the output of each follower."""
    schedule = evidence.schedule
    begin = evidence.asked[0].at if evidence.asked else 0.0
    of_server = (*schedule.refusals, schedule.lag, schedule.restore, schedule.revocation)
    plan = [f"  {each}" for each in (*schedule.faults, *schedule.outages, *schedule.stops, *filter(None, of_server))]
    came = [
        f"  {each.at - begin:7.2f} {each.method} {each.traffic} {each.code or '   '} {each.target[:160]}"
        + (f"  <- {each.fault.harm} {each.fault.code or ''} after {each.fault.after}" if each.fault else "")
        for each in evidence.asked
    ]
    return "\n".join([*plan, *came, *_lives(evidence), f"  {by_kind(evidence.asked)}"])


def _lives(evidence: Evidence) -> list[str]:
    return [
        f"  follower {number}: after {life.began_after!r}, {len(life.lines)} lines, {life.notices} {life.error}"
        for number, life in enumerate(evidence.lives)
    ]
