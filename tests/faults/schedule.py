"""Fault schedules: a job's story and the faults during it, drawn from a seed; equal seeds give equal schedules."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from faults.fault import Blindness, Fault, Harm, Lag, Outage, Refusals, Restore, Revocation, Traffic


class Story(StrEnum):
    """Behaviour of the job."""

    SUCCEEDS = "succeeds"
    FAILS = "fails"
    """Exits with 1 after its lines."""
    RESTARTS = "restarts"
    """Exits with 1 once, is restarted in its pod (OnFailure), and succeeds."""
    IS_DELETED = "is deleted"
    """Is deleted by another user after some of its lines."""
    HANGS = "hangs"
    """Never ends; is stopped at its deadline."""
    LOSES_A_WORKER = "loses a worker"
    """The worker fails, and rank 0 would run forever."""
    STARTS_UNSEEN = "starts unseen"
    """Waits for a Secret, starts while its pods cannot be watched, and trains until its start timeout has passed."""


@dataclass(frozen=True, kw_only=True)
class Stop:
    """Premature end of a follower.

    Attributes:
        seconds: duration of its life.
        keeps_cursor: its last cursor is kept, as at a restart; otherwise it is killed, and the stored cursor is older.
        pause: seconds until the next follower begins.
        resubmits: the next follower submits again first, as a restarted worker does.
    """

    seconds: float
    keeps_cursor: bool
    pause: float
    resubmits: bool


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """One schedule.

    Attributes:
        seed: seed of the schedule.
        story: behaviour of the job.
        lines: number of lines that the job writes per run.
        burst: number of lines written at once; 0.1 s passes between two bursts.
        has_neighbour: a second job is followed as well, so that both share the watches of the namespace.
        faults: faults of single requests.
        outages: outages of the server.
        submit_stops: seconds after which each submitter but the last is killed.
        stops: end of each follower but the last, which follows until the job ends.
        refusals: periods in which all requests except creates are refused.
        lag: period in which the server's cache is stale.
        restore: moment at which the versions that clients hold become too large.
        revocation: period in which the account has no rights.
        other_after: seconds after the job's creation when the same task of another installation submits its job.
        blindness: period in which the job or its pods cannot be watched; only for a job that starts unseen.
    """

    seed: int
    story: Story
    lines: int
    burst: int
    has_neighbour: bool
    faults: tuple[Fault, ...]
    outages: tuple[Outage, ...]
    submit_stops: tuple[float, ...]
    stops: tuple[Stop, ...]
    refusals: tuple[Refusals, ...] = ()
    lag: Lag | None = None
    restore: Restore | None = None
    revocation: Revocation | None = None
    other_after: float | None = None
    blindness: Blindness | None = None

    @classmethod
    def draw(cls, seed: int) -> Schedule:
        """Return the schedule of this seed."""
        dice = random.Random(seed)  # noqa: S311 - to be repeated, not to be secret
        story = dice.choices(_STORIES, weights=(6, 4, 4, 3, 2, 1))[0]
        bursts = dice.randint(8, 25)
        burst = dice.choice((1, 1, 3, 10))
        may_resubmit = story not in {Story.IS_DELETED, Story.HANGS}  # a task whose job is gone starts another one
        found = cls(
            seed=seed,
            story=story,
            lines=bursts * burst,
            burst=burst,
            has_neighbour=dice.choice((False, True)),
            faults=_faults(dice),
            outages=tuple(_outage(dice) for _ in range(dice.choices((0, 1, 2), weights=(3, 4, 1))[0])),
            submit_stops=tuple(_spread(dice, 0.02, 1.5) for _ in range(dice.choices((0, 1, 2), weights=(4, 2, 1))[0])),
            stops=tuple(_stop(dice, may_resubmit=may_resubmit) for _ in range(dice.randint(0, 3))),
        )
        found = replace(found, **_of_server(dice))
        return _unseen(found, dice) if dice.random() < 1 / 15 else found


_STORIES = [story for story in Story if story is not Story.STARTS_UNSEEN]


def _unseen(schedule: Schedule, dice: random.Random) -> Schedule:
    """Return the schedule with a job that starts while it cannot be watched, and without other faults of the server."""
    code, retry_after = dice.choice(((403, None), (503, 7200), (0, None)))
    resources = dice.choice((("pods",), ("pods",), ("pods", "pytorchjobs")))
    blindness = Blindness(begins_after=6.0, seconds=60.0, resources=resources, code=code, retry_after=retry_after)
    others: dict[str, Any] = {"outages": (), "refusals": (), "lag": None, "restore": None, "revocation": None}
    return replace(schedule, story=Story.STARTS_UNSEEN, blindness=blindness, faults=(), **others)


_REACHED = {Traffic.REQUEST: 12, Traffic.WATCH: 6, Traffic.LOG: 4}
"""Number of requests of each kind among which the faults are spread; later faults would hit no request."""

_CODES = {
    Traffic.REQUEST: (401, 409, 429, 429, 500, 503),
    Traffic.WATCH: (400, 401, 401, 403, 403, 410, 410, 429, 500, 503),
    Traffic.LOG: (400, 401, 401, 403, 403, 429, 500, 503),
}
"""A 400 or 403 of a single request could hit one before the job exists, so only `Refusals` sends those."""

_OF_GATEWAYS = {400, 403, 503}
"""Codes that a gateway may also answer with its own page."""


def _faults(dice: random.Random) -> tuple[Fault, ...]:
    found = []
    for traffic, reached in _REACHED.items():
        numbers = sorted(dice.sample(range(reached), dice.randint(0, reached // 2)))
        found += [_fault(dice, traffic, number) for number in numbers]
    return _without_second_expiry(found)


def _of_server(dice: random.Random) -> dict[str, Any]:
    """Return the faults of the whole server once the job exists: at most one of lag and restore, and others."""
    odd = dice.choices((None, _lag, _restore), weights=(2, 1, 1))[0]
    found = odd(dice) if odd else None
    return {
        "lag": found if isinstance(found, Lag) else None,
        "restore": found if isinstance(found, Restore) else None,
        "refusals": tuple(_refusals(dice) for _ in range(dice.choices((0, 1, 2), weights=(4, 3, 1))[0])),
        "revocation": _revocation(dice) if dice.random() < 1 / 4 else None,
        "other_after": _spread(dice, 0.0, 3.0) if dice.random() < 1 / 4 else None,
    }


def _lag(dice: random.Random) -> Lag:
    forgets = dice.random() < 2 / 3
    return Lag(begins_after=_spread(dice, 0.0, 6.0), seconds=_spread(dice, 0.5, 4.0), forgets=forgets)


def _restore(dice: random.Random) -> Restore:
    drops = dice.random() < 2 / 3
    lasts = drops or dice.choice((False, True))
    return Restore(
        begins_after=_spread(dice, 0.0, 6.0),
        seconds=None if lasts else _spread(dice, 0.5, 4.0),
        drops=drops,
        silent=drops and dice.choice((False, True)),
    )


def _refusals(dice: random.Random) -> Refusals:
    code = dice.choice((400, 401, 403, 403))
    return Refusals(
        begins_after=_spread(dice, 0.0, 6.0),
        seconds=_spread(dice, 0.3, 3.0),
        code=code,
        page=code in _OF_GATEWAYS and dice.random() < 0.5,
        resets=dice.random() < 2 / 3,
    )


def _revocation(dice: random.Random) -> Revocation:
    return Revocation(
        begins_after=_spread(dice, 0.0, 6.0), seconds=_spread(dice, 0.5, 4.0), resets=dice.random() < 2 / 3
    )


def _fault(dice: random.Random, traffic: Traffic, number: int) -> Fault:
    harm = dice.choice([*Harm])
    code = dice.choice(_CODES[traffic]) if harm is Harm.REFUSE else 0
    in_the_middle = traffic is not Traffic.REQUEST and (code in {0, 410} and dice.random() < 2 / 3)
    return Fault(
        harm=harm,
        traffic=traffic,
        number=number,
        after=_spread(dice, 0.3, 4.0) if in_the_middle or _is_cut_stream(harm, traffic) else 0.0,
        seconds=_spread(dice, 0.1, 1.5) if harm is Harm.DELAY or in_the_middle else 0.0,
        code=code,
        retry_after=dice.choice((1, 2)) if code == 429 else None,
        arrives=traffic is Traffic.REQUEST and dice.random() < 0.5,
        clean=dice.random() < 0.5,
        page=code in _OF_GATEWAYS and dice.random() < 0.3,
    )


def _is_cut_stream(harm: Harm, traffic: Traffic) -> bool:
    return harm is Harm.TRUNCATE and traffic is not Traffic.REQUEST


def _without_second_expiry(faults: list[Fault]) -> tuple[Fault, ...]:
    """Keep only the first 401 of a request: before the job exists, a second 401 with a new credential is an error."""
    first = next((fault for fault in faults if fault.code == 401 and fault.traffic is Traffic.REQUEST), None)
    kept = (fault for fault in faults if fault.code != 401 or fault.traffic is not Traffic.REQUEST or fault is first)
    return tuple(kept)


def _outage(dice: random.Random) -> Outage:
    return Outage(
        begins_after=_spread(dice, 0.2, 9.0), seconds=_spread(dice, 0.5, 4.0), refuses=dice.choice((False, True))
    )


def _stop(dice: random.Random, *, may_resubmit: bool) -> Stop:
    return Stop(
        seconds=_spread(dice, 0.3, 6.0),
        keeps_cursor=dice.choice((False, True)),
        pause=dice.choice((0.0, 0.0, 0.5, 1.5)),
        resubmits=may_resubmit and dice.choice((False, True)),
    )


def _spread(dice: random.Random, least: float, most: float) -> float:
    return round(dice.uniform(least, most), 2)
