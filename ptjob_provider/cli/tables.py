"""Tables that `ptjob` shows to people; programs use `-o json` or `-o yaml`."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ptjob_provider.cli.output import emit_rows
from ptjob_provider.cli.printable import printable, say
from ptjob_provider.core.diagnosis import failed_replicas_text, is_clean_up
from ptjob_provider.core.history import ContainerKind
from ptjob_provider.core.status import JobPhase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ptjob_provider.core.history import PodHistory, Termination
    from ptjob_provider.core.history.peak_usage import PeakUsage
    from ptjob_provider.core.inspector import Check, NodeUse, ReplicaUse
    from ptjob_provider.core.run.orphans import LiveJob, Orphan
    from ptjob_provider.core.run.snapshot import Snapshot
    from ptjob_provider.core.status import JobStatus

PHASE_COLOURS = {"Succeeded": "green", "Failed": "red", "Running": "cyan", "Suspended": "magenta", "Pending": "yellow"}
_WIDE = 400
_KILLED = 137
_BLANK_END = re.compile(r"(?:\s|\x1b\[[\d;]*m)+$")
_NO_COLOUR = "\x1b[0m"
_KIBI = 1024
_MARKS = {True: ("✓", "green"), False: ("✗", "bold red"), None: ("·", "dim")}
_UNITS = (
    (timedelta(days=1), "d", timedelta(hours=1), "h"),
    (timedelta(hours=1), "h", timedelta(minutes=1), "m"),
    (timedelta(minutes=1), "m", timedelta(seconds=1), "s"),
)


class _Table(Table):
    """A table whose cells may contain foreign texts."""

    def add_row(self, *cells: str | Text, **options: Any) -> None:  # type: ignore[override]  # no other renderables
        """Add a row; control characters in its cells are escaped."""
        shown = (
            Text(printable(cell.plain), cell.style) if isinstance(cell, Text) else printable(cell) for cell in cells
        )
        super().add_row(*shown, **options)


def show(table: Table) -> None:
    """Print; outside a terminal, lines are long instead of wrapped."""
    console = Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False, markup=False, emoji=False)
    with console.capture() as printed:
        console.print(table)
    for line in printed.get().splitlines():
        click.echo(_trimmed(line))  # noqa: TID251 - with our own colours, and printable cells


def show_rows(
    rows: Sequence[Mapping[str, Any]], table: Callable[[], Table], output: str | None, *, key: str = "name", none: str
) -> None:
    """Print rows for programs, with `key` as their names, or for people the table; without any, say so on stderr."""
    if output:
        emit_rows([row[key] for row in rows], rows, output)
    elif rows:
        show(table())
    else:
        say(none, err=True)


def _trimmed(line: str) -> str:
    """Return a line without trailing blanks, also where they are coloured."""
    trimmed = _BLANK_END.sub("", line)
    return f"{trimmed}{_NO_COLOUR}" if "\x1b[" in trimmed else trimmed


def jobs(rows: Iterable[Mapping[str, Any]], *, now: datetime, with_namespace: bool = False) -> Table:
    """Return the list of jobs, with a column of namespaces for several, and with nodes if the rows have them."""
    rows = list(rows)
    nodes = ("NODE",) if any("nodes" in row for row in rows) else ()
    where_from = ("NAMESPACE",) if with_namespace else ()
    table = _table(*where_from, "NAME", "PHASE", "REASON", "REPLICAS", "AGE", "RAN", "KIND", *nodes, "OWNER")
    for row in rows:
        age, ran = _age(row["created_at"], now), _ran(row, now)
        where = (row["namespace"],) if with_namespace else ()
        told = (row["name"], _phase(row["phase"]), row["in_brief"], str(row["replicas"]), age, ran, row["kind"])
        places = (", ".join(row["nodes"]),) if nodes else ()
        table.add_row(*where, *told, *places, owner_text(row["owner"]))
    return table


def _ran(row: Mapping[str, Any], now: datetime) -> str:
    """Return how long a job has run; an upper limit for a job without a start time, such as a TrainJob.

    `-`: it has not run, or that is unknown; or it is suspended, and starts anew when it is resumed.
    """
    started, running, finished = (_instant(row[f"{what}_at"]) for what in ("started", "running", "finished"))
    if row["phase"] == JobPhase.SUSPENDED:
        return "-"
    if running is not None:
        return duration((finished or now) - running)
    has_run = row["phase"] in {JobPhase.RUNNING, JobPhase.SUCCEEDED}
    return f"<{duration((finished or now) - started)}" if has_run and started else "-"


def live(jobs: Iterable[LiveJob], *, now: datetime) -> Table:
    """Return the list of jobs that use resources, with their owners."""
    table = _table("NAME", "PHASE", "AGE", "INSTANCE", "OWNER")
    for each in jobs:
        age = duration(now - each.created_at)
        table.add_row(each.ref.name, _phase(each.phase), age, each.instance, owner_text(each.owner))
    return table


def orphans(findings: Iterable[Orphan], *, now: datetime) -> Table:
    """Return the list of orphaned jobs, and what was done about each."""
    table = _table("NAME", "PHASE", "AGE", "OWNER", "WHY", "NOW")
    for each in findings:
        job, done = each.job, "stopped" if each.stopped else "left as it is"
        age = duration(now - job.created_at)
        table.add_row(job.ref.name, _phase(job.phase), age, owner_text(job.owner), each.why or "not known", done)
    return table


def job(snapshot: Snapshot) -> Table:
    """Return the description of one job as a whole."""
    said, ref, status = snapshot.to_dict(), snapshot.submission.ref, snapshot.status
    lines: dict[str, str | Text] = {
        "job": str(ref),
        "kind": ref.kind,
        "uid": ref.uid,
        "phase": _phase(said["phase"]),
        "reason": snapshot.diagnosis.in_one_line(ref) if snapshot.diagnosis else "",
        "message": "" if snapshot.diagnosis or _is_told(status.message, snapshot) else status.message,
        "failed": failed_replicas_text(said["failed_replicas"]) if status.phase is JobPhase.SUCCEEDED else "",
        "waits": snapshot.waiting,
        "progress": _progress(snapshot.trainer_status),
        "replicas": "" if status.phase.is_terminal or ref.kind == "TrainJob" else _counted(said["replica_statuses"]),
        "owner": owner_text(snapshot.owner),
        "priority": snapshot.priority,
        "attempt": str(said["attempt"]) if said["attempt"] > 1 else "",
        "created": _time(status.created_at),
        "ended": _time(status.finished_at),
        **_times(snapshot, said),
        "code": said["git_revision"] or _folder(said["code_revision"]),
        "model": _model(snapshot, said["model"]),
        "tfevents": _tfevents(snapshot, said["tfevents"]),
        "tensorboard": said["tensorboard_url"] or "",
    }
    table = _Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, text in lines.items():
        if text:
            table.add_row(name, text)
    return table


def _progress(reported: Mapping[str, Any]) -> str:
    """Return what a TrainJob's program last reported, with its time; "" if it reports nothing."""
    percent, seconds = reported.get("progressPercentage"), reported.get("estimatedRemainingSeconds")
    parts = [
        *([f"{percent} %"] if percent is not None else []),
        *([f"about {duration(timedelta(seconds=seconds))} left"] if seconds is not None else []),
        *(f"{metric['name']} {metric['value']}" for metric in reported.get("metrics") or ()),
    ]
    return f"{', '.join(parts)} ({_time(_instant(reported.get('lastUpdatedTime')))})" if parts else ""


def _times(snapshot: Snapshot, said: Mapping[str, Any]) -> dict[str, str | Text]:
    """Return how long the job waited and ran; `not known` where nobody followed it and its object does not tell."""
    if _is_unseen(snapshot.record, snapshot.status):
        return {"waited": "not known", "ran": "not known"}
    again = f", {restarts(said['restarts'])}" if said["restarts"] else ""
    return {"waited": f"{said['queue_seconds']:.1f} s", "ran": f"{said['run_seconds']:.1f} s{again}"}


def replicas(snapshot: Snapshot) -> Table:
    """Return the state of each replica, including those whose pods are gone."""
    pods = {snapshot.replica_of(pod): pod for pod in snapshot.pods}
    table = _table("RANK", "REPLICA", "PHASE", "AGE", "NODE", "ENDED WITH")
    over_at = snapshot.status.finished_at if snapshot.status.phase is JobPhase.FAILED else None
    for name, rank in snapshot.submission.ranks.items():
        codes = ", ".join(_ends(snapshot.record, name, over_at))
        pod = pods.get(name) or {"status": {"phase": _without_pod(snapshot.record, name, snapshot.status)}}
        node = (pod.get("spec") or {}).get("nodeName") or ""
        age = _age((pod.get("metadata") or {}).get("creationTimestamp"), snapshot.now)
        table.add_row(str(rank), name, _phase(str((pod.get("status") or {}).get("phase") or "")), age, node, codes)
    return table


def _ends(record: PodHistory, replica: str, over_at: datetime | None) -> Iterator[str]:
    """Yield how the training ended, and which other containers of the pod failed, with their names.

    The job failed at `over_at`.
    """
    for end in record.terminations:
        is_training = end.kind is ContainerKind.TRAINING
        if end.replica == replica and (is_training or end.failed):
            said = _ended_with(record, replace(end, stopped=end.stopped or is_clean_up(end, over_at)))
            yield said if is_training else f"{end.container}: {said}"


def _ended_with(record: PodHistory, end: Termination) -> str:
    """Return an exit code and its reason; no code if a killed pod's container has none of its own.

    The kubelet writes 137 for a container that it does not find when its pod is deleted, also for one that never ran.
    """
    said = f"{_code(end.exit_code)} {end.reason}".strip()
    if end.exit_code != _KILLED or end.started_at is not None or not end.pod_uid:
        return f"{said}, stopped" if end.stopped and end.failed else said
    was_lost = end.reason == "ContainerStatusUnknown" and record.first_running_at is not None
    return end.reason if was_lost else "never ran"


def _without_pod(record: PodHistory, replica: str, status: JobStatus) -> str:
    """Return whether a replica without a pod had one; for an ended job that ran unobserved: most likely.

    `not seen`: the job has ended, and nothing of its pods is known.
    """
    if _is_unseen(record, status):
        return "not seen"
    ran_unseen = status.phase.is_terminal and record.first_running_at is not None
    return "gone" if ran_unseen or record.had_pod(replica) else "not made"


def _is_unseen(record: PodHistory, status: JobStatus) -> bool:
    """Return whether the job ended and nothing tells whether it ran, as of a TrainJob that nobody followed."""
    return status.phase.is_terminal and record.first_running_at is None and record.is_blank(status.finished_at)


def conditions(snapshot: Snapshot) -> Table:
    """Return the job's conditions in kubectl's format, the oldest change first."""
    table = _table("CONDITION", "STATUS", "SINCE", "REASON", "MESSAGE")
    for each in sorted(snapshot.conditions, key=lambda each: str(each.get("lastTransitionTime") or "")):
        since = _age(each.get("lastTransitionTime"), snapshot.now)
        table.add_row(each["type"], each["status"], since, each.get("reason") or "", each.get("message") or "")
    return table


def peaks(used: Mapping[str, PeakUsage]) -> Table:
    """Return the measured peaks of replicas; `-` without measurements."""
    table = _table("REPLICA", "PEAK CPU", "PEAK MEMORY", "DISK")
    for name, use in used.items():
        bytes_of = [_known(each, size) for each in (use.peak_memory, use.disk)]
        table.add_row(name, _known(use.peak_cpu, _cores), *bytes_of)
    return table


def events(rows: Iterable[Mapping[str, Any]], *, now: datetime) -> Table:
    """Return the events in kubectl's format."""
    table = _table("LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE")
    for row in rows:
        times = f" (×{row['count']})" if row["count"] > 1 else ""
        warns = Text(row["type"], style="yellow" if row["type"] == "Warning" else "")
        table.add_row(_age(row["at"], now), warns, row["reason"], row["object"], f"{row['message']}{times}")
    return table


def nodes(found: Iterable[NodeUse]) -> Table:
    """Return the list of nodes, in Arena's columns and with CPU and memory."""
    table = _table("NAME", "IPADDRESS", "ROLE", "STATUS", "GPU(Total)", "GPU(Allocated)", "CPU", "MEMORY")
    for node in found:
        status = Text(node.status, style="" if node.status == "ready" else "yellow")
        cpu, memory = _part(node.cpu_taken, node.cpu, _cores), _part(node.memory_taken, node.memory, size)
        gpus = (str(node.gpus), str(node.gpus_taken))
        table.add_row(node.name, node.address, node.role or "<none>", status, *gpus, cpu, memory)
    return table


def jobs_in_use(rows: Iterable[Mapping[str, Any]], *, now: datetime) -> Table:
    """Return the list of jobs with their GPUs."""
    table = _table("NAME", "GPU(Requests)", "GPU(Allocated)", "PHASE", "AGE", "NODE")
    for row in rows:
        gpus = (str(row["gpus"]), str(row["gpus_allocated"]))
        table.add_row(row["name"], *gpus, _phase(row["phase"]), _age(row["created_at"], now), row["node"] or "N/A")
    return table


def replicas_in_use(
    replicas: Iterable[ReplicaUse], most: Mapping[str, PeakUsage], record: PodHistory, status: JobStatus
) -> Table:
    """Return each replica's current usage and its measured peaks; `-` without measurements."""
    used = ("CPU", "PEAK CPU", "MEMORY", "PEAK MEMORY", "DISK")
    table = _table("REPLICA", "PHASE", "NODE", "GPU", *used)
    for use in replicas:
        peak = most[use.replica]
        cpu = [_known(each, _cores) for each in (use.cpu, peak.peak_cpu)]
        memory = [_known(each, size) for each in (use.memory, peak.peak_memory)]
        row = (use.node, str(use.gpus), *cpu, *memory, _known(peak.disk, size))
        table.add_row(use.replica, _phase(use.phase or _without_pod(record, use.replica, status)), *row)
    return table


def checks(found: Iterable[Check]) -> Table:
    """Return the checks, and what to do."""
    table = _table("", "ABOUT", "SEEN", "WHAT TO DO")
    for check in found:
        mark, style = _MARKS[check.is_good]
        table.add_row(Text(mark, style=style), check.about, check.said, check.advice)
    return table


def claims(rows: Iterable[Mapping[str, Any]], *, now: datetime) -> Table:
    """Return the list of claims, in Arena's columns and with size and state."""
    table = _table("NAME", "ACCESSMODE", "SIZE", "STATUS", "CLASS", "DESCRIPTION", "OWNER", "AGE")
    for row in rows:
        columns = ("name", "access_mode", "size", "status", "storage_class", "description", "owner")
        table.add_row(*(row[name] for name in columns), _age(row["created_at"], now))
    return table


def files(rows: Iterable[Mapping[str, Any]]) -> Table:
    """Return the content of a folder."""
    table = _table("NAME", "BYTES", "MODIFIED")
    for row in rows:
        table.add_row(row["name"], f"{row['bytes']:,}" if row["bytes"] is not None else "", row["modified"])
    return table


def size(count: float) -> str:
    """Return bytes in Kubernetes' format: `512Mi`, `1.5Gi`."""
    value, unit = float(count), ""
    for larger in ("Ki", "Mi", "Gi", "Ti"):
        if value < _KIBI:
            break
        value, unit = value / _KIBI, larger
    return f"{value:.1f}".removesuffix(".0") + unit


def owner_text(owner: Mapping[str, str]) -> str:
    """Return a job's owner: `dag.task[map index] run, try N` for Airflow's, the person for the command line's."""
    if "arena" in owner:
        return f"{owner['arena']} (Arena)"
    if "submitted_by" in owner:
        return owner["submitted_by"]
    if "dag_id" not in owner:
        return " ".join(f"{key}={value}" for key, value in owner.items())
    mapped = f"[{owner['map_index']}]" if owner.get("map_index", "-1") != "-1" else ""
    tries = f", try {owner['try_number']}" if "try_number" in owner else ""
    return f"{owner['dag_id']}.{owner.get('task_id', '')}{mapped} {owner.get('run_id', '')}{tries}"


def duration(span: timedelta) -> str:
    """Return a duration in kubectl's format: `45s`, `3m12s`, `2h5m`, `3d4h`; `0s` if negative."""
    for size, unit, rest_size, rest_unit in _UNITS:
        if span >= size:
            return f"{span // size}{unit}{span % size // rest_size}{rest_unit}"
    return f"{max(span, timedelta()) // timedelta(seconds=1)}s"


def restarts(count: int) -> str:
    """Return `1 restart`, `5 restarts`."""
    return f"{count} restart{'' if count == 1 else 's'}"


def _is_told(message: str, snapshot: Snapshot) -> bool:
    """Return whether a condition has the same text, which the table of conditions shows."""
    return any(each.get("message") == message for each in snapshot.conditions)


def _model(snapshot: Snapshot, found: Mapping[str, Any] | None) -> str:
    declared = snapshot.submission.outputs.model
    facts = f" ({found['bytes']:,} bytes, sha256 {found['sha256']})" if found else ""
    return f"{declared.uri}{facts}" if declared else ""


def _folder(revision: Mapping[str, Any] | None) -> str:
    if revision is None:
        return ""
    state = f" ({'changed since ' * revision['dirty']}{revision['commit']})" if revision["commit"] else ""
    return f"{revision['digest']}{state}"


def _tfevents(snapshot: Snapshot, found: Mapping[str, Any] | None) -> str:
    declared = snapshot.submission.outputs.tfevents
    scalars = [f"{tag}={value:.4g}" for tag, value in found["scalars"].items()] if found else []
    facts = f" (step {found['last_step']}: {', '.join(scalars)})" if found and scalars else ""
    return f"{declared.uri}{facts}" if declared else ""


def _counted(statuses: Mapping[str, Mapping[str, Any]]) -> str:
    """Return `Master 1 active, Worker 2 active 1 failed`; values that are not numbers above 0 are left out."""
    told = {
        role: [f"{count} {state}" for state, count in counts.items() if isinstance(count, int) and count]
        for role, counts in statuses.items()
    }
    return ", ".join(f"{role} {' '.join(counts)}" for role, counts in told.items() if counts)


def _cores(count: float) -> str:
    return f"{count:.2f}".rstrip("0").rstrip(".")


def _known(value: float | None, say: Callable[[float], str]) -> str:
    return "-" if value is None else say(value)


def _part(taken: float | None, whole: float | None, say: Callable[[float], str]) -> str:
    return _known(whole, say) if taken is None else f"{say(taken)} of {_known(whole, say)}"


def _table(*columns: str) -> Table:
    table = _Table(box=None, header_style="dim", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _phase(phase: str) -> Text:
    return Text(phase, style=PHASE_COLOURS.get(phase, "dim"))


def _age(text: str | None, now: datetime) -> str:
    instant = _instant(text or None)
    return duration(now - instant) if instant else ""


def _code(exit_code: int | None) -> str:
    return "unknown" if exit_code is None else str(exit_code)


def _time(instant: datetime | None) -> str:
    return instant.isoformat(sep=" ", timespec="seconds") if instant else ""


def _instant(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
