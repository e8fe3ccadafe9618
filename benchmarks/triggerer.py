"""Measures one real triggerer with ten thousand deferred tasks: its health, its cost, and whether logs are complete.

`make bench-triggerer` runs it. Airflow's own components run on PostgreSQL, and the jobs are real PyTorchJobs on the
test cluster. The task instances are written into the database as deferred, by Airflow's own models. After the wait,
some jobs are resumed: their pods print numbered lines, workers finish the tasks, and the logs are read over REST. A
table is printed; the exit code is 0 only if the triggerer was always healthy and every log complete.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from benchmarks.meter import raise_file_limit
from benchmarks.triggerer_cost import Look, Phase
from benchmarks.triggerer_scene import Scene, scene
from cluster.shell import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def main() -> int:
    """Measure, print, and return 0 if everything was healthy and complete."""
    arguments = parsed()
    raise_file_limit(arguments.jobs)
    tell = Progress()
    with scene(tell, capacity=arguments.jobs + 100, per_loop=arguments.per_loop) as at:
        phases, lost = measure(at, arguments, tell)
    print_table(phases, arguments.jobs)
    unhealthy = {phase.name: dict(phase.ailments) for phase in phases if phase.ailments}
    sys.stdout.write(
        f"looks at which it was not healthy: {unhealthy or 'none'} of {sum(len(each.looks) for each in phases)}\n"
    )
    sys.stdout.write(f"tasks without a whole log: {', '.join(lost) or 'none'} of {arguments.ending}\n")
    return 1 if unhealthy or lost else 0


def parsed() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--ending", type=int, default=50, help="jobs that run and end after the wait")
    parser.add_argument("--minutes", type=float, default=10, help="of waiting")
    parser.add_argument("--per-loop", type=int, default=50, help="[triggerer] max_trigger_to_select_per_loop")
    return parser.parse_args()


def measure(
    at: Scene, arguments: argparse.Namespace, tell: Callable[[str], None]
) -> tuple[Sequence[Phase], Sequence[str]]:
    """Return the phases of the measurement, and the runs that did not succeed with a complete log."""
    idle = Phase(name="no trigger", looks=[Look.at_triggerer(at.stack)])
    at.stack["triggerer"].stop()
    tell(f"creating {arguments.jobs} jobs")
    jobs = at.make_jobs(arguments.jobs, arguments.ending)
    tell("writing their task instances")
    at.write_task_instances(jobs)
    tell("starting the triggerer")
    started = start(at, arguments.jobs)
    tell(f"all triggers run after {started.seconds:.0f} s; waiting {arguments.minutes:g} minutes")
    until = time.time() + arguments.minutes * 60
    waited = Phase.watched("waiting", at.stack, lambda look: look.at >= until)
    tell(f"letting {arguments.ending} jobs go")
    ending = jobs[: arguments.ending]
    at.let_go(ending)
    ended = Phase.watched("some end", at.stack, lambda _: at.count("success", "failed") == len(ending))
    return (idle, started, waited, ended), at.incomplete_logs(ending)


def start(at: Scene, triggers: int) -> Phase:
    """Start the triggerer, and return once it runs all triggers, which means that it has a log file open for each."""
    at.stack["triggerer"].start()
    at.stack.wait_healthy(["triggerer"])
    return Phase.watched("start-up", at.stack, lambda look: look.parent.files >= triggers)


def print_table(phases: Sequence[Phase], jobs: int) -> None:
    """Print each phase's cost; memory per job is the increase over a triggerer without triggers."""
    table = Table(title=f"one triggerer, {jobs} deferred tasks", title_justify="left", box=None)
    for column in ("", "s", "core %", "RSS MB", "KB/job", "files", "blocked", "worst s", "heartbeat s"):
        table.add_column(column, justify="right" if column else "left")
    for phase in phases:
        for process in ("parent", "runner"):
            table.add_row(*_row(phase, process, phases[0], jobs))
    Console(width=120).print(table)


def _row(phase: Phase, process: str, idle: Phase, jobs: int) -> tuple[str, ...]:
    now, before = getattr(phase.last, process), getattr(idle.last, process)
    return (
        f"{phase.name}, {process}",
        f"{phase.seconds:.0f}",
        f"{100 * phase.share_of_a_core(process):.1f}",
        f"{now.resident / 1e6:.0f}",
        f"{(now.unique - before.unique) / jobs / 1000:.1f}",
        str(now.files),
        str(len(phase.blocked)),
        f"{max(phase.blocked, default=0.0):.2f}",
        f"{phase.oldest_heartbeat:.1f}",
    )


if __name__ == "__main__":
    sys.exit(main())
