"""Results of one run, and the figures derived from them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.contestants import PARSED_WATCH, TRIGGER
from benchmarks.meter import percentile

if TYPE_CHECKING:
    from benchmarks.live_logs import Followed, Written
    from benchmarks.rates import Rate
    from benchmarks.stress import Stressed
    from benchmarks.waiting import Waited

THEIR_LOGGER = "Airflow's logger, one record a line"
OUR_LOG = "PyTorchJobTrigger"


@dataclass(kw_only=True)
class Results:
    """All results of one run."""

    waited: list[Waited] = field(default_factory=list)
    rates: list[Rate] = field(default_factory=list)
    written: list[Written] = field(default_factory=list)
    followed: list[Followed] = field(default_factory=list)
    stressed: dict[str, Stressed] = field(default_factory=dict)
    overhead: str = ""

    def of(self, contender: str, size: int) -> Waited | None:
        """Return the measurement of one contender at one size."""
        matching = (each for each in self.waited if each.contender == contender and each.size == size)
        return next(matching, None)


@dataclass(frozen=True, kw_only=True)
class Target:
    """One target and its measurement; nan if it was not measured."""

    what: str
    must: float
    aim: float
    reached: float
    unit: str = ""
    at_least: bool = False

    @property
    def verdict(self) -> str:
        """Return the stricter limit that was reached: `aim`, `must`, or `missed` for none."""
        if math.isnan(self.reached):
            return "not measured"
        for word, limit in (("aim", self.aim), ("must", self.must)):
            if self.reached >= limit if self.at_least else self.reached <= limit:
                return word
        return "missed"


def targets(results: Results, most: int) -> list[Target]:
    """Compare the measurements with the targets; `most` is the largest size of the run."""
    nan = math.nan
    rates = [each.per_hour for each in sorted(results.rates, key=lambda each: each.size)] or [nan]
    ours, floor = results.of(TRIGGER.kind.name, most), results.of(PARSED_WATCH.kind.name, most)
    smaller = results.of(TRIGGER.kind.name, min(1000, most))
    return [
        Target(what="requests an hour, fewest jobs", must=120, aim=60, reached=rates[0]),
        Target(what="requests an hour, most jobs", must=120, aim=60, reached=rates[-1]),
        Target(what="more requests per running job-hour with live logs", must=3, aim=1, reached=_following(results)),
        Target(
            what="CPU while jobs change, against a bare watch that parses",
            must=3,
            aim=2,
            reached=ours.busy_cpu / floor.busy_cpu if ours and floor else nan,
            unit="x",
        ),
        Target(
            what="CPU while nothing happens", must=5, aim=5, reached=100 * ours.quiet_cpu if ours else nan, unit="%"
        ),
        Target(
            what="memory per waiting job",
            must=60,
            aim=30,
            reached=ours.held / ours.size / 1e3 if ours else nan,
            unit="KB",
        ),
        *(
            Target(
                what=f"worst loop lag, a tenth ends in 10 s, {settings}",
                must=250,
                aim=100,
                reached=1e3 * max(stressed.late, default=nan),
                unit="ms",
            )
            for settings, stressed in results.stressed.items()
        ),
        Target(
            what="terminal status to event, p99, over a bare watch",
            must=250,
            aim=50,
            reached=1e3 * percentile(smaller.since_seen, 99) if smaller else nan,
            unit="ms",
        ),
        Target(
            what="log lines a second, against Airflow's own logger",
            must=0.8,
            aim=5,
            reached=_log_ratio(results),
            unit="x",
            at_least=True,
        ),
    ]


def _following(results: Results) -> float:
    rates = (each.per_job_hour for each in results.followed if each.follower == TRIGGER.kind.name)
    return next(rates, math.nan)


def _log_ratio(results: Results) -> float:
    speed = {each.writer: each.lines / each.seconds for each in results.written}
    return speed[OUR_LOG] / speed[THEIR_LOGGER] if {OUR_LOG, THEIR_LOGGER} <= speed.keys() else math.nan
