"""Tables that `ptjob` shows to people; programs use `-o json` or `-o yaml`."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ptjob_provider.cli.output import emit_rows, printable, say
from ptjob_provider.core import kinds
from ptjob_provider.core.diagnosis import failed_replicas_text, is_clean_up
from ptjob_provider.core.history import ContainerKind
from ptjob_provider.core.status import JobPhase, parse_instant
from ptjob_provider.core.training_progress import Progress, epoch_text, progress_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from rich.console import RenderableType

    from ptjob_provider.core.history import PodHistory, Termination
    from ptjob_provider.core.history.peak_usage import PeakUsage
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.inspector import Check, NodeUse, ReplicaUse
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


class Styled(NamedTuple):
    """A cell with one of rich's styles."""

    text: str
    style: str


@dataclass(frozen=True)
class Table:
    """A table for people; control characters in its cells are escaped when it is shown.

    Attributes:
        columns: the headings; () for names and values without headings.
        rows: the cells of each row.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str | Styled]]


def show(table: Table) -> None:
    """Print a table; outside a terminal, lines are only wrapped after `_WIDE` characters."""
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(box=None, show_header=bool(table.columns), header_style="dim", pad_edge=False)
    for column in table.columns:
        drawn.add_column(column, overflow="fold")
    if not table.columns:
        drawn.add_column(style="dim")
        drawn.add_column(overflow="fold")
    for row in table.rows:
        styled = (Styled(each, "") if isinstance(each, str) else each for each in row)
        drawn.add_row(*(Text(printable(each.text), each.style) for each in styled))
    draw(drawn)


def draw(drawn: RenderableType) -> None:
    """Print what rich draws, whose texts are printable."""
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False, markup=False, emoji=False)
    with console.capture() as printed:
        console.print(drawn)
    for line in printed.get().splitlines():
        click.echo(_trimmed(line))  # noqa: TID251 - the colours are ours, and the cells are printable


def show_rows(
    rows: Sequence[Mapping[str, Any]],
    table: Callable[[], Table],
    output: str | None,
    *,
    key: str = "name",
    none: str = "",
) -> None:
    """Print rows for programs, named by `key`, or the table for people; the text `none` replaces an empty table."""
    if output:
        emit_rows([row[key] for row in rows], rows, output)
    elif rows or not none:
        show(table())
    else:
        say(none, err=True)


def _trimmed(line: str) -> str:
    """Return a line without trailing blanks, also where they are coloured."""
    trimmed = _BLANK_END.sub("", line)
    return f"{trimmed}{_NO_COLOUR}" if "\x1b[" in trimmed else trimmed


def jobs(rows: Sequence[Mapping[str, Any]], *, now: datetime, with_namespace: bool = False) -> Table:
    """Return the list of jobs, with a column of namespaces for several, and with nodes if the rows have them."""
    columns: dict[str, Callable[[Mapping[str, Any]], str | Styled]] = {
        "NAMESPACE": lambda row: row["namespace"],
        "NAME": lambda row: row["name"],
        "PHASE": lambda row: _phase(row["phase"]),
        "REASON": lambda row: row["in_brief"],
        "REPLICAS": lambda row: str(row["replicas"]),
        "AGE": lambda row: _age(row["created_at"], now),
        "RAN": lambda row: _ran(row, now),
        "STEP": lambda row: _step(row["progress"]),
        "ETA": lambda row: _left(row["progress"] or {}, now),
        "KIND": lambda row: row["kind"],
        "NODE": lambda row: ", ".join(row["nodes"]),
        "OWNER": lambda row: owner_text(row["owner"]),
    }
    if not with_namespace:
        del columns["NAMESPACE"]
    if not any("nodes" in row for row in rows):
        del columns["NODE"]
    if not any("progress" in row for row in rows):
        del columns["STEP"], columns["ETA"]
    return _table(columns, ([cell(row) for cell in columns.values()] for row in rows))


def _step(progress: Mapping[str, Any] | None) -> str:
    now = Progress.from_dict(progress or {})
    of = f"/{now.total}" if now.total else ""
    return f"{now.step}{of}" if now.step is not None else epoch_text(now) or "-"


def _left(progress: Mapping[str, Any], now: datetime) -> str:
    """Return the time left, counted from now; `-` if it is unknown, or over without a word of the training."""
    eta, at = progress.get("eta"), parse_instant(progress.get("at"))
    if eta is None or at is None:
        return "-"
    left = timedelta(seconds=eta) - max(now - at, timedelta())
    return duration(left) if left >= timedelta() else "-"


def _ran(row: Mapping[str, Any], now: datetime) -> str:
    """Return how long a job has run; an upper limit for a job without a start time, such as a TrainJob.

    `-`: it has not run, or that is unknown; or it is suspended, and starts anew when it is resumed.
    """
    started, running, finished = (parse_instant(row[f"{what}_at"]) for what in ("started", "running", "finished"))
    if row["phase"] == JobPhase.SUSPENDED:
        return "-"
    if running is not None:
        return duration((finished or now) - running)
    has_run = row["phase"] in {JobPhase.RUNNING, JobPhase.SUCCEEDED}
    return f"<{duration((finished or now) - started)}" if has_run and started else "-"


def job(snapshot: Snapshot, progress: str = "") -> Table:
    """Return the description of one job as a whole.

    Args:
        snapshot: the job.
        progress: what its log, or its report to Trainer, says about the training.
    """
    values, ref, status = snapshot.to_dict(), snapshot.submission.ref, snapshot.status
    is_condition = any(each.get("message") == status.message for each in snapshot.conditions)  # shown below
    lines: dict[str, str | Styled] = {
        "job": str(ref),
        "kind": ref.kind,
        "uid": ref.uid,
        "phase": _phase(values["phase"]),
        "reason": snapshot.diagnosis.in_one_line(ref) if snapshot.diagnosis else "",
        "message": "" if snapshot.diagnosis or is_condition else status.message,
        "failed": failed_replicas_text(values["failed_replicas"]) if status.phase is JobPhase.SUCCEEDED else "",
        "waits": snapshot.waiting,
        "progress": progress,
        "owner": owner_text(values["owner"]),
        "priority": snapshot.priority,
        "attempt": str(values["attempt"]) if values["attempt"] > 1 else "",
        "resumed": values["resumed"] or "",
        "created": _time(status.created_at),
        "ended": _time(status.finished_at),
        **_times(snapshot, values),
        "code": values["git_revision"] or _folder(values["code_revision"]),
        "model": _model(snapshot, values["model"]),
        "tfevents": _tfevents(snapshot, values["tfevents"]),
        "tensorboard": values["tensorboard_url"] or "",
    }
    return _table((), (line for line in lines.items() if line[1]))


def progress(now: Progress | None) -> str:
    """Return what the log says about a training, with the time of its last line; "" if it says nothing."""
    return f"{progress_text(now)} ({_time(parse_instant(now.at))})" if now else ""


def _times(snapshot: Snapshot, values: Mapping[str, Any]) -> dict[str, str | Styled]:
    """Return how long the job waited and ran; `not known` if neither a follower nor its object recorded that."""
    if _is_unobserved(snapshot.record, snapshot.status):
        return {"waited": "not known", "ran": "not known"}
    again = f", {restarts(values['restarts'])}" if values["restarts"] else ""
    return {"waited": f"{values['queue_seconds']:.1f} s", "ran": f"{values['run_seconds']:.1f} s{again}"}


def replicas(snapshot: Snapshot) -> Table:
    """Return the state of each replica, including those whose pods are gone."""
    replica_of = kinds.replica_of(snapshot.job)
    pods = {replica_of(pod): pod for pod in snapshot.pods}
    return _table(
        ("RANK", "REPLICA", "PHASE", "AGE", "NODE", "ENDED WITH"),
        (_replica_row(snapshot, name, rank, pods.get(name)) for name, rank in snapshot.ranks.items()),
    )


def _replica_row(snapshot: Snapshot, name: str, rank: int | None, pod: Manifest | None) -> tuple[str | Styled, ...]:
    record, status = snapshot.record, snapshot.status
    number = "" if rank is None else str(rank)
    ends = ", ".join(_ends(record, name, status.finished_at if status.phase is JobPhase.FAILED else None))
    if pod is None:
        return number, name, _phase(_without_pod(record, name, status)), "", "", ends
    age = _age((pod.get("metadata") or {}).get("creationTimestamp"), snapshot.now)
    phase = str((pod.get("status") or {}).get("phase") or "")
    return number, name, _phase(phase), age, (pod.get("spec") or {}).get("nodeName") or "", ends


def _ends(record: PodHistory, replica: str, failed_at: datetime | None) -> Iterator[str]:
    """Yield how each run of the training ended, and which other containers of the pod failed, with their names."""
    for end in record.terminations:
        is_training = end.kind is ContainerKind.TRAINING
        if end.replica == replica and (is_training or end.failed):
            text = _ended_with(record, replace(end, stopped=end.stopped or is_clean_up(end, failed_at)))
            yield text if is_training else f"{end.container}: {text}"


def _ended_with(record: PodHistory, end: Termination) -> str:
    """Return the exit code and the reason of a container's end; only the reason if the code is not the container's own.

    The kubelet writes 137 for a container that it does not find when its pod is deleted, also for one that never ran.
    What ended the whole pod, such as an eviction, is named as well.
    """
    disruption = end.disruption.partition(":")[0]
    if disruption and end.started_at is None:
        return disruption
    code = "unknown" if end.exit_code is None else end.exit_code
    text = ", ".join(part for part in (f"{code} {end.reason}".strip(), disruption) if part)
    if end.exit_code != _KILLED or end.started_at is not None or not end.pod_uid:
        return f"{text}, stopped" if end.stopped and end.failed else text
    was_lost = end.reason == "ContainerStatusUnknown" and record.first_running_at is not None
    return end.reason if was_lost else "never ran"


def _without_pod(record: PodHistory, replica: str, status: JobStatus) -> str:
    """Return `gone` for a replica that had a pod, as all replicas of an ended job that ran most likely had.

    `not made`: it had none. `not seen`: the job has ended, and nothing is known about its pods.
    """
    if _is_unobserved(record, status):
        return "not seen"
    has_run = status.phase.is_terminal and record.first_running_at is not None
    return "gone" if has_run or record.had_pod(replica) else "not made"


def _is_unobserved(record: PodHistory, status: JobStatus) -> bool:
    """Return whether the job ended and it is unknown whether it ran, as for a TrainJob without a follower."""
    return status.phase.is_terminal and record.first_running_at is None and record.is_blank(status.finished_at)


def conditions(snapshot: Snapshot) -> Table:
    """Return the job's conditions in kubectl's format, the oldest change first."""
    rows = (
        (
            *(each["type"], each["status"], _age(each.get("lastTransitionTime"), snapshot.now)),
            *(each.get("reason") or "", each.get("message") or ""),
        )
        for each in sorted(snapshot.conditions, key=lambda each: str(each.get("lastTransitionTime") or ""))
    )
    return _table(("CONDITION", "STATUS", "SINCE", "REASON", "MESSAGE"), rows)


def peaks(used: Mapping[str, PeakUsage]) -> Table:
    """Return the measured peaks of replicas; `-` without measurements."""
    rows = ((name, _known(peak.peak_cpu, _cores), _known(peak.peak_memory, size)) for name, peak in used.items())
    return _table(("REPLICA", "PEAK CPU", "PEAK MEMORY"), rows)


def events(rows: Iterable[Mapping[str, Any]], *, now: datetime) -> Table:
    """Return the events in kubectl's format."""
    cells = (
        (
            _age(row["at"], now),
            Styled(row["type"], "yellow" if row["type"] == "Warning" else ""),
            *(row["reason"], row["object"]),
            row["message"] + (f" (×{row['count']})" if row["count"] > 1 else ""),
        )
        for row in rows
    )
    return _table(("LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"), cells)


def nodes(used: Iterable[NodeUse]) -> Table:
    """Return the list of nodes: Arena's columns, then CPU and memory."""
    rows = (
        (
            *(node.name, node.address, node.role or "<none>"),
            Styled(node.status, "" if node.status == "ready" else "yellow"),
            *(str(node.gpus), str(node.gpus_taken)),
            *(_part(node.cpu_taken, node.cpu, _cores), _part(node.memory_taken, node.memory, size)),
        )
        for node in used
    )
    return _table(("NAME", "IPADDRESS", "ROLE", "STATUS", "GPU(Total)", "GPU(Allocated)", "CPU", "MEMORY"), rows)


def jobs_in_use(rows: Iterable[Mapping[str, Any]], *, now: datetime) -> Table:
    """Return the list of jobs with their GPUs."""
    cells = (
        (
            *(row["name"], str(row["gpus"]), str(row["gpus_allocated"]), _phase(row["phase"])),
            *(_age(row["created_at"], now), row["node"] or "N/A"),
        )
        for row in rows
    )
    return _table(("NAME", "GPU(Requests)", "GPU(Allocated)", "PHASE", "AGE", "NODE"), cells)


def replicas_in_use(replicas: Iterable[ReplicaUse], peaks: Mapping[str, PeakUsage]) -> Table:
    """Return each replica's current usage and its measured peaks; `-` without measurements."""
    rows = (
        (
            *(use.replica, _phase(use.phase or "no pod"), use.node, str(use.gpus)),
            *(_known(each, _cores) for each in (use.cpu, peaks[use.replica].peak_cpu)),
            *(_known(each, size) for each in (use.memory, peaks[use.replica].peak_memory)),
        )
        for use in replicas
    )
    return _table(("REPLICA", "PHASE", "NODE", "GPU", "CPU", "PEAK CPU", "MEMORY", "PEAK MEMORY"), rows)


def checks(checks: Iterable[Check]) -> Table:
    """Return the checks, and what to do."""
    rows = ((Styled(*_MARKS[check.is_good]), check.about, check.result, check.advice) for check in checks)
    return _table(("", "CHECK", "RESULT", "WHAT TO DO"), rows)


def claims(rows: Iterable[Mapping[str, Any]], *, now: datetime) -> Table:
    """Return the list of claims: Arena's columns, with size and state among them."""
    names = ("name", "access_mode", "size", "status", "storage_class", "description", "owner")
    cells = ((*(row[name] for name in names), _age(row["created_at"], now)) for row in rows)
    return _table(("NAME", "ACCESSMODE", "SIZE", "STATUS", "CLASS", "DESCRIPTION", "OWNER", "AGE"), cells)


def files(rows: Iterable[Mapping[str, Any]]) -> Table:
    """Return the content of a folder."""
    cells = ((row["name"], _known(row["bytes"], "{:,}".format, ""), row["modified"]) for row in rows)
    return _table(("NAME", "BYTES", "MODIFIED"), cells)


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


def _model(snapshot: Snapshot, value: Mapping[str, Any] | None) -> str:
    declared = snapshot.submission.outputs.model
    facts = f" ({value['bytes']:,} bytes, sha256 {value['sha256']})" if value else ""
    return f"{declared.uri}{facts}" if declared else ""


def _folder(revision: Mapping[str, Any] | None) -> str:
    if revision is None:
        return ""
    state = f" ({'changed since ' * revision['dirty']}{revision['commit']})" if revision["commit"] else ""
    return f"{revision['digest']}{state}"


def _tfevents(snapshot: Snapshot, value: Mapping[str, Any] | None) -> str:
    declared = snapshot.submission.outputs.tfevents
    last = value["scalars"] if value else {}
    scalars = [f"{tag}={each if isinstance(each, str) else f'{each:.4g}'}" for tag, each in last.items()]
    facts = f" (step {value['last_step']}: {', '.join(scalars)})" if value and scalars else ""
    return f"{declared.uri}{facts}" if declared else ""


def _cores(count: float) -> str:
    return f"{count:.2f}".rstrip("0").rstrip(".")


def _known(value: float | None, text: Callable[[float], str], unknown: str = "-") -> str:
    return unknown if value is None else text(value)


def _part(taken: float | None, whole: float | None, text: Callable[[float], str]) -> str:
    return _known(whole, text) if taken is None else f"{text(taken)} of {_known(whole, text)}"


def _table(columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> Table:
    return Table(tuple(columns), [tuple(row) for row in rows])


def _phase(phase: str) -> Styled:
    return Styled(phase, PHASE_COLOURS.get(phase, "dim"))


def _age(text: str | None, now: datetime) -> str:
    instant = parse_instant(text)
    return duration(now - instant) if instant else ""


def _time(instant: datetime | None) -> str:
    return instant.isoformat(sep=" ", timespec="seconds") if instant else ""
