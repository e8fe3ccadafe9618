"""Measures the highest load: many jobs wait, a tenth of them end within seconds, and some print at full speed.

It runs in Airflow's own triggerer (`bare_triggerer`); one more trigger measures the lag of the shared loop.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks import live_logs, meter
from benchmarks.many_jobs import in_parallel
from benchmarks.polling import until
from benchmarks.triggerer_run import triggerer
from benchmarks.waiting import paced, spread
from ptjob_provider.core.run.submit import Submission

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.triggerer_run import TriggererRun
    from benchmarks.waiting import Crowd, Plan, User

_BEGIN = 600.0
_REST = 60.0
"""Seconds between the last trigger's start and the first ending.

Each trigger logs what its job waits for, and ten thousand such notices use ten seconds of the limit that the printing
jobs share.
"""


@dataclass(frozen=True, kw_only=True)
class Stressed:
    """Measurements of the stress.

    Attributes:
        begin: seconds until every trigger ran.
        late_before: the loop's lag with log lines only, by measurement.
        late: the same while jobs ended.
        fired: the number of triggers of ended jobs that had fired at the end.
        lines: lines per second in the logs of the printing jobs, while jobs ended.
        cpu: cores that the runner used while jobs ended.
        memory: PSS of supervisor and runner before jobs ended, in bytes.
    """

    size: int
    talkers: int
    plan: Plan
    begin: float
    late_before: Sequence[float]
    late: Sequence[float]
    fired: int
    lines: float
    cpu: float
    memory: tuple[int, int]


async def stress(
    crowd: Crowd, talkers: Sequence[Submission], user: User, plan: Plan, scratch: Path, *, settings: str = ""
) -> Stressed:
    """Run the stress once, and restore the crowd afterwards; `settings` is the triggerer's `airflow_local_settings`."""
    lag = scratch / "lag"
    waiting = [Submission.of(job) for job in crowd.objects]
    orders = [live_logs.our_trigger(each, user, f"{each.ref.name}.log") for each in (*talkers, *waiting)]
    logs = [scratch / "logs" / f"{each.ref.name}.log" for each in talkers]
    began_at = time.monotonic()
    async with triggerer([live_logs.lag_trigger(lag), *orders], scratch, settings) as run:
        await _all_run(run, len(orders))
        begin = time.monotonic() - began_at
        await asyncio.sleep(_REST)
        memory = (meter.memory(run.parent).pss, meter.memory(run.runner).pss)
        resting = time.time() - _REST / 4
        chosen = spread(crowd.objects, plan.endings)
        before = sum(live_logs.lines_in(each) for each in logs)
        began, used = time.time(), meter.cpu_seconds(run.runner)
        await paced(chosen, plan.ending, crowd.finish)
        await asyncio.sleep(plan.ending / 2)  # so that the triggers' work after the last ending is measured, too
        ended, seconds = time.time(), time.time() - began
        lines = sum(live_logs.lines_in(each) for each in logs) - before
        cpu = (meter.cpu_seconds(run.runner) - used) / seconds
        await asyncio.sleep(5.0)
    await in_parallel(crowd.revive, chosen)
    return Stressed(
        size=len(waiting),
        talkers=len(talkers),
        plan=plan,
        begin=begin,
        late_before=live_logs.looks(lag, resting, began),
        late=live_logs.looks(lag, began, ended),
        fired=len(run.events),
        lines=lines / seconds,
        cpu=cpu,
        memory=memory,
    )


async def _all_run(run: TriggererRun, number: int) -> None:
    """Return once every trigger has begun: the runner then writes a line to its log."""

    async def have_logs() -> bool:
        return run.logs.exists() and sum(1 for _ in run.logs.iterdir()) > number

    await until(f"{number} triggers to begin", have_logs, patience=_BEGIN, every=1.0)
