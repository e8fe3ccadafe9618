"""Writes the page about the results: tables in Markdown, and the method."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from benchmarks.contestants import EVERYBODY, PARSED_WATCH, TRIGGER
from benchmarks.meter import percentile
from benchmarks.results import THEIR_LOGGER, Results, targets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.results import Target
    from benchmarks.stress import Stressed
    from benchmarks.waiting import Waited

METHOD = """\
One command measures everything, side by side in one run: `make bench` (sizes: `make bench SIZES=1,100`). The server is
the Kubernetes of the tests (docs/contributing/test-cluster.md): a real API server on a real etcd, on this same machine.

- **Jobs** are real PyTorchJobs, suspended; `managedBy` keeps the operator away, and their status is written through the
  status subresource. **Pods** of KubernetesPodTrigger are real pod objects that no scheduler takes; their status is
  written the same way. Where lines are read, real containers print them.
- **Each contender** runs in a process of its own, at niceness -10, because the server shares its cores. Triggers run as
  Airflow's runner runs them: one loop, a greenback portal and a log context for each. CPU is the scheduler's count for
  the process, memory its PSS over what the process had when everything was imported. The loop's lag is how much later
  than 10 ms a sleep of 10 ms ends.
- **Requests** are counted by the server: each contender is a service account with a flow schema of its own
  (`apiserver_flowcontrol_dispatched_requests_total`); readers of logs by `apiserver_request_total` and
  `apiserver_longrunning_requests`.
- **Time to event** is from the moment the change of the status is sent, so it holds the server's own commit; *over a
  watch* is from the moment a bare watch in a process of its own, which parses nothing, has the same event; a
  dash where that watch's one connection had ended before.
- **Logs and the last table** run in Airflow's own triggerer - supervisor, runner, socket and log files - that gets its
  triggers from a file instead of a database; a line has arrived when it is in its task's log file."""


def page(results: Results, *, most: int, machine: Mapping[str, str]) -> str:
    """Return the whole page; `most` is the largest size of the run."""
    facts = "\n".join(f"- {name}: {value}" for name, value in machine.items())
    parts = [
        "# Benchmarks",
        "Written by `make bench`; every figure is from the run described here, those of other projects too.",
        facts,
        "![Waiting: memory, CPU, requests and time to event by number of jobs](../images/benchmarks.svg)",
        "## The numbers to reach",
        _targets(targets(results, most)),
        "## Waiting",
        *(_waiting(results, size) for size in sorted({each.size for each in results.waited})),
        _limits(results),
        "## Requests while nothing happens",
        _rates(results),
        "## Live logs",
        _written(results),
        _followed(results),
        "## The worst quarter of a minute",
        _stressed(results.stressed),
        "## From asking to running, and back, on this machine alone",
        results.overhead,
        "## How it is measured",
        METHOD,
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown that is also readable as plain text."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        first, *rest = zip(cells, widths, strict=True)
        return f"| {first[0]:<{first[1]}} | " + " | ".join(f"{cell:>{width}}" for cell, width in rest) + " |"

    rule = "| " + "-" * widths[0] + " | " + " | ".join("-" * (width - 1) + ":" for width in widths[1:]) + " |"
    return "\n".join([line(header), rule, *(line(row) for row in rows)])


def number(value: float, digits: int = 1) -> str:
    """Return a figure as text, or a dash if it was not measured."""
    return "–" if math.isnan(value) else f"{value:,.{digits}f}"


def _targets(measured: Sequence[Target]) -> str:
    def limit(target: Target, value: float) -> str:
        return f"{'≥' if target.at_least else '≤'} {value:g} {target.unit}".strip()

    rows = [
        [each.what, limit(each, each.must), limit(each, each.aim), f"{number(each.reached)} {each.unit}", each.verdict]
        for each in measured
    ]
    return table(["what", "must", "aim", "reached", "verdict"], rows)


def _waiting(results: Results, size: int) -> str:
    header = [
        f"{size:,} waiting",
        "begins, s",
        "peak, MB",
        "KB per job",
        "connections",
        "requests/h",
        "core % idle",
        "core % busy",
        "busy x",
        "lag p99, ms",
        "lag worst",
        "event p50, ms",
        "event p99",
        "over a watch p50",
        "over a watch p99",
        "missed",
    ]
    measured = [each for each in results.waited if each.size == size]
    floor = results.of(PARSED_WATCH.kind.name, size)
    plan = measured[0].plan
    changes = f"{plan.changes:g} changes a second while busy; {plan.endings} end within {plan.ending:g} s."
    return f"{table(header, [_waited(each, floor) for each in measured])}\n\n{changes}"


def _waited(each: Waited, floor: Waited | None) -> list[str]:
    lag = [*each.begin_lag, *each.end_lag]
    return [
        each.contender,
        number(each.begin),
        number(each.begin_peak / 1e6, 0),
        number(each.held / each.size / 1e3),
        str(each.connections),
        number(each.quiet_requests * 3600 / each.plan.quiet, 0),
        number(100 * each.quiet_cpu, 2),
        number(100 * each.busy_cpu, 2),
        number(each.busy_cpu / floor.busy_cpu if floor and floor.busy_cpu else math.nan, 2),
        number(1e3 * percentile(lag, 99)),
        number(1e3 * max(lag, default=math.nan), 0),
        number(1e3 * percentile(each.since_sent, 50)),
        number(1e3 * percentile(each.since_sent, 99), 0),
        number(1e3 * percentile(each.since_seen, 50)),
        number(1e3 * percentile(each.since_seen, 99)),
        str(each.missed),
    ]


def _limits(results: Results) -> str:
    largest = max((each.size for each in results.waited), default=0)
    limited = [each for each in EVERYBODY if each.why and max(each.sizes) < largest]
    return "\n".join(f"- {each.kind.name} is measured up to {max(each.sizes):,}: {each.why}." for each in limited)


def _rates(results: Results) -> str:
    rows = [
        [each.contender, f"{each.size:,}", number(each.requests, 0), number(each.seconds / 60), number(each.per_hour)]
        for each in results.rates
    ]
    return table(["who", "jobs", "requests", "in minutes", "an hour"], rows) if rows else ""


def _written(results: Results) -> str:
    floor = next((each.lines / each.seconds for each in results.written if each.writer == THEIR_LOGGER), math.nan)
    rows = [
        [
            each.writer,
            f"{each.lines:,}",
            number(each.seconds, 2),
            number(each.lines / each.seconds, 0),
            number(each.lines / each.seconds / floor, 2),
            number(100 * each.cpu, 0),
            number(1e3 * percentile(each.late, 99)),
            number(1e3 * max(each.late, default=math.nan), 0),
        ]
        for each in results.written
    ]
    header = ["one log", "lines", "seconds", "lines/s", "x", "core %", "lag p99, ms", "lag worst"]
    return table(header, rows) if rows else ""


def _followed(results: Results) -> str:
    rows = [
        [
            each.follower,
            str(each.jobs),
            number(each.opened, 0),
            number(each.opened_logs, 0),
            number(each.later, 0),
            number(each.later_logs, 0),
            number(each.seconds / 60),
            number(each.per_job_hour),
        ]
        for each in results.followed
    ]
    header = [
        "follows",
        "jobs",
        "requests at first",
        "of logs",
        "then",
        "of logs",
        "in minutes",
        "of logs per job-hour",
    ]
    return table(header, rows) if rows else ""


def _stressed(measured: Mapping[str, Stressed]) -> str:
    if not measured:
        return ""
    figures: dict[str, Callable[[Stressed], str]] = {
        "triggers waiting": lambda each: f"{each.size:,}",
        "seconds until all of them run": lambda each: number(each.begin),
        "jobs that print, and lines a second that arrive": lambda each: f"{each.talkers}, {number(each.lines, 0)}",
        "jobs that end, within so many seconds": lambda each: f"{each.plan.endings}, {each.plan.ending:g}",
        "triggers that fired": lambda each: f"{each.fired}",
        "loop lag p99 and worst while only lines come, ms": lambda each: _lag(each.late_before),
        "loop lag p99 and worst while jobs end, ms": lambda each: _lag(each.late),
        "CPU of the runner meanwhile, % of a core": lambda each: number(100 * each.cpu, 0),
        "memory of supervisor and runner, MB": lambda each: " and ".join(number(part / 1e6, 0) for part in each.memory),
    }
    rows = [[what, *(figure(each) for each in measured.values())] for what, figure in figures.items()]
    return table([TRIGGER.kind.name + " in Airflow's triggerer", *measured], rows)


def _lag(late: Sequence[float]) -> str:
    return f"{number(1e3 * percentile(late, 99))} and {number(1e3 * max(late, default=math.nan), 0)}"


def figures(results: Results) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Return the plot's data: title → contender → points."""
    figure_of: dict[str, Callable[[Waited], float]] = {
        "memory per waiting job, KB": lambda each: each.held / each.size / 1e3,
        "CPU while jobs change, % of a core": lambda each: 100 * each.busy_cpu,
        "requests an hour while nothing happens": lambda each: each.quiet_requests * 3600 / each.plan.quiet,
        "terminal status to event, p99, ms": lambda each: 1e3 * percentile(each.since_sent, 99),
    }
    plots: dict[str, dict[str, list[tuple[float, float]]]] = {title: {} for title in figure_of}
    for title, figure in figure_of.items():
        for each in results.waited:
            plots[title].setdefault(each.contender, []).append((each.size, figure(each)))
    return plots
