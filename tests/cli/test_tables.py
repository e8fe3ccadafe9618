"""Tests of `ptjob get` and `list`: a job's replicas, its times, its progress. The back-end is scripted."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from fakes import ScriptedBackend, finished
from ptjob_provider.cli import tables
from ptjob_provider.cli.jobs import row_of
from ptjob_provider.core.backend import Observation
from ptjob_provider.core.history import ContainerKind, PodHistory, Termination, to_text
from ptjob_provider.core.history.peak_usage import PeakUsage
from ptjob_provider.core.identity import (
    CODE_ANNOTATION,
    OUTPUTS_ANNOTATION,
    RECORD_ANNOTATION,
    REPORT_ANNOTATION,
    RESUMED_ANNOTATION,
)
from ptjob_provider.core.outputs.contract import (
    OutputFacts,
    OutputReport,
    ResolvedOutput,
    ResolvedOutputs,
    report_text,
)
from ptjob_provider.core.run.snapshot import look
from ptjob_provider.core.training_progress import Progress
from recorded import recorded
from rows import each_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.run.snapshot import Snapshot

NOW = datetime(2026, 11, 20, 10, 10, tzinfo=UTC)


def column(table: tables.Table, name: str) -> list[str]:
    """Return the texts of a column."""
    cells = [row[table.columns.index(name)] for row in table.rows]
    return [cell if isinstance(cell, str) else cell.text for cell in cells]


async def snapshot_of(job: Manifest, *, pods: Sequence[Manifest] = ()) -> Snapshot:
    """Return the job's snapshot."""
    backend, meta = ScriptedBackend(), job["metadata"]
    backend.jobs[meta["namespace"], meta["name"]] = job
    backend.worlds = [Observation(job=job, pods=pods)]
    return await look(backend, meta["namespace"], meta["name"], inspect=False, now=NOW)


def rows_of(snapshot: Snapshot) -> dict[Any, Any]:
    """Return the rows of `ptjob get` about the job itself."""
    return dict(tables.job(snapshot).rows)


async def test_a_later_attempt_says_where_it_went_on() -> None:
    text = "attempt 2 resumed at step 800 of 1,000; 37 steps (2 min 10 s) repeated"
    found = train_job()
    found["metadata"]["annotations"] = {RESUMED_ANNOTATION: text}

    snapshot = await snapshot_of(found)

    assert (rows_of(snapshot)["resumed"], snapshot.to_dict()["resumed"]) == (text, text)
    assert "resumed" not in rows_of(await snapshot_of(train_job()))


def train_job(nodes: int = 1, **status: Any) -> Manifest:
    """Return a TrainJob."""
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "digits", "namespace": "team", "uid": "u", "creationTimestamp": "2026-11-20T10:00:00Z"},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": nodes}},
        "status": status,
    }


def pod(index: int, phase: str) -> Manifest:
    """Return a pod of the TrainJob, with JobSet's labels and name."""
    labels = {"jobset.sigs.k8s.io/jobset-name": "digits", "batch.kubernetes.io/job-completion-index": str(index)}
    name = {"name": f"digits-node-0-{index}-x7kqp", "namespace": "team", "uid": f"p-{index}"}
    meta = {**name, "labels": labels, "creationTimestamp": "2026-11-20T10:01:00Z"}
    return {"metadata": meta, "spec": {"nodeName": f"gpu-{index}", "containers": []}, "status": {"phase": phase}}


async def test_each_replica_is_shown_with_its_node_and_the_job_with_its_kind() -> None:
    """A replica without a pod has no node; it is gone only if it ever existed."""
    job = train_job(nodes=3, jobsStatus=[{"name": "node", "active": 2, "failed": 0}])

    snapshot = await snapshot_of(job, pods=[pod(0, "Running"), pod(1, "Pending")])

    shown = tables.replicas(snapshot)
    assert [column(shown, name) for name in ("REPLICA", "PHASE", "AGE", "NODE")] == [
        ["digits-node-0-0", "digits-node-0-1", "digits-node-0-2"],
        ["Running", "Pending", "not made"],
        ["9m0s", "9m0s", ""],
        ["gpu-0", "gpu-1", ""],
    ]
    fetched = replace(snapshot, record=replace(snapshot.record, revisions=("0a1b2c",)))
    rows = rows_of(fetched)
    assert (rows["kind"], rows["code"], "replicas" in rows) == ("TrainJob", "0a1b2c", False)  # it counts batch Jobs


@each_row(
    ("state", "shown"),
    [
        ({"commit": "0a1b2c", "dirty": True}, "sha256:d99c (changed since 0a1b2c)"),
        ({"commit": "0a1b2c", "dirty": False}, "sha256:d99c (0a1b2c)"),
        ({"commit": None, "dirty": None}, "sha256:d99c"),
    ],
)
async def test_the_folder_of_a_job_is_shown_by_its_content_and_its_commit(state: dict[str, Any], shown: str) -> None:
    """It replaces the commit of fetched code."""
    job = recorded("pytorchjob-failed")
    job["metadata"]["annotations"] = {CODE_ANNOTATION: json.dumps({"digest": "sha256:d99c", **state})}

    assert rows_of(await snapshot_of(job))["code"] == shown


async def test_scalars_are_shown_that_are_no_numbers() -> None:
    """JSON has no NaN, which a training that has diverged writes, so that the report has a text."""
    output = ResolvedOutput(uri="pvc://runs/tb", claim="runs", path="tb", container_path="/data/tb")
    facts = OutputFacts(exists=True, files=1, bytes=9, last_step=7, scalars={"loss": "NaN", "lr": 0.25})
    job = recorded("pytorchjob-succeeded")
    job["metadata"]["annotations"] = {
        OUTPUTS_ANNOTATION: json.dumps(ResolvedOutputs(tfevents=output).to_dict()),
        REPORT_ANNOTATION: report_text(OutputReport(tfevents=facts)),
    }

    assert rows_of(await snapshot_of(job))["tfevents"] == "pvc://runs/tb (step 7: loss=NaN, lr=0.25)"


@each_row(
    ("condition", "shown"),
    [("Succeeded", "digits-failed-worker-0 (rank 1) exited with code 1: its last line is “no data”"), ("Failed", None)],
)
async def test_a_replica_that_failed_in_a_job_that_succeeded_is_shown(condition: str, shown: str | None) -> None:
    """For a failed job, the diagnosis has more."""
    snapshot = await snapshot_of(finished(recorded("pytorchjob-failed"), condition))
    end = Termination(replica="digits-failed-worker-0", key="k", container="pytorch", exit_code=1, message="no data")

    rows = rows_of(replace(snapshot, record=PodHistory(terminations=(end,))))

    assert rows.get("failed") == shown


def end(**fields: Any) -> Termination:
    """Return the end of a worker's container."""
    return Termination(replica="digits-failed-worker-0", exit_code=0, reason="Completed", **fields)


@each_row(
    ("name", "ran"),
    [
        ("pytorchjob-succeeded", "7m21s"),
        ("pytorchjob-running", "9m51s"),
        ("pytorchjob-created", "-"),
        ("pytorchjob-suspended", "-"),
        ("pytorchjob-resumed", "4m50s"),
    ],
)
def test_a_list_says_how_long_a_job_has_run_and_not_how_old_it_is(name: str, ran: str) -> None:
    """From its conditions; `-` if it never ran, or starts again."""
    assert column(tables.jobs([row_of(recorded(name))], now=NOW), "RAN") == [ran]


def test_a_job_that_failed_before_it_ran_has_run_for_no_time() -> None:
    """For example a job whose image could not be pulled until its deadline."""
    job = recorded("pytorchjob-failed")
    job["status"]["conditions"] = [each for each in job["status"]["conditions"] if each["type"] != "Running"]

    assert column(tables.jobs([row_of(job)], now=NOW), "RAN") == ["-"]


def test_a_train_job_has_run_since_it_was_seen_to_and_else_at_most_since_it_was_made() -> None:
    """No condition has the start of its run; a follower's record may have it."""
    job = recorded("trainjob-succeeded")["job"]
    noted = PodHistory(first_running_at=datetime(2026, 11, 20, 10, 0, 3, tzinfo=UTC))

    unseen = column(tables.jobs([row_of(job)], now=NOW), "RAN")
    job["metadata"]["annotations"][RECORD_ANNOTATION] = to_text(noted)
    assert (unseen, column(tables.jobs([row_of(job)], now=NOW), "RAN")) == (["<9s"], ["6s"])
    failed = recorded("trainjob-failed-node")["job"]
    assert column(tables.jobs([row_of(failed)], now=NOW), "RAN") == ["-"]


async def test_a_failed_train_job_that_nobody_followed_shows_what_is_not_known() -> None:
    """JobSet has deleted its pods, and its object says neither that they existed nor when they ran."""
    snapshot = await snapshot_of(recorded("trainjob-failed-node")["job"])

    rows = rows_of(snapshot)
    assert (rows["waited"], rows["ran"]) == ("not known", "not known")
    assert rows["reason"].startswith("nobody followed the job, so it is unknown how its replicas ended; the job says: ")
    assert set(column(tables.replicas(snapshot), "PHASE")) == {"not seen"}


@each_row(
    ("fields", "ran_at", "shown"),
    [
        ({"reason": "ContainerStatusUnknown"}, None, "never ran"),
        ({"reason": "ContainerStatusUnknown"}, NOW, "ContainerStatusUnknown"),
        ({"reason": "ContainerStatusUnknown", "started_at": NOW}, NOW, "137 ContainerStatusUnknown"),
        ({"reason": "Error"}, NOW, "never ran"),
        ({"reason": "Error", "started_at": NOW, "stopped": True}, NOW, "137 Error, stopped"),
        ({"reason": "Error", "started_at": NOW, "finished_at": NOW}, NOW, "137 Error, stopped"),
        ({"reason": "Error", "pod_uid": ""}, NOW, "137 Error"),
        ({"reason": "StartError", "exit_code": 128}, None, "128 StartError"),
        ({"exit_code": None, "disruption": "Evicted: Usage of EmptyDir volume"}, NOW, "Evicted"),
        ({"reason": "Error", "disruption": "Evicted: low on memory", "started_at": NOW}, NOW, "137 Error, Evicted"),
    ],
)
async def test_the_exit_code_of_a_container_that_did_not_end_by_itself_is_explained(
    fields: dict[str, Any], ran_at: datetime | None, shown: str
) -> None:
    """137 looks like out of memory, but the kubelet also writes it when it has no exit code."""
    snapshot = await snapshot_of(recorded("pytorchjob-failed"))
    known = {"key": "k", "container": "pytorch", "pod_uid": "u", "exit_code": 137}
    killed = Termination(replica="digits-failed-worker-0", **{**known, **fields})

    seen = PodHistory(terminations=(killed,), first_running_at=ran_at)

    assert column(tables.replicas(replace(snapshot, record=seen)), "ENDED WITH") == ["", shown]


async def test_the_end_of_a_replica_names_failed_sidecars_and_the_end_of_its_training() -> None:
    """A completed init container is not the replica's end."""
    job = recorded("pytorchjob-failed")
    job["metadata"]["labels"] = {}
    snapshot = await snapshot_of(job)
    init = end(key="a", container="init-code", kind=ContainerKind.INIT)
    proxy = replace(init, key="b", container="proxy", kind=ContainerKind.SIDECAR, exit_code=137, reason="Error")
    seen = replace(snapshot.record, terminations=(init, proxy, end(key="c", container="pytorch")))

    shown = tables.replicas(replace(snapshot, record=seen))

    assert column(shown, "ENDED WITH") == ["", "proxy: 137 Error, 0 Completed"]
    assert column(shown, "PHASE") == ["gone", "gone"]
    assert snapshot.to_dict()["run_seconds"] == 91.0


def test_peaks_are_shown_in_kubernetes_units() -> None:
    """`-` for what was not measured."""
    shown = tables.peaks({"digits-master-0": PeakUsage(peak_memory=3 * 2**29, samples=1)})

    assert column(shown, "PEAK MEMORY") == ["1.5Gi"]
    assert column(shown, "PEAK CPU") == ["-"]


@each_row(
    ("progress", "step", "left"),
    [
        (None, "-", "-"),
        (Progress(step=5, total=10, eta=90.4, at=NOW.isoformat()), "5/10", "1m30s"),
        (Progress(step=5, total=10, eta=90.4, at=(NOW - timedelta(seconds=30)).isoformat()), "5/10", "1m0s"),
        (Progress(step=5, total=10, eta=90.4, at=(NOW - timedelta(seconds=91)).isoformat()), "5/10", "-"),
        (Progress(step=5, total=10, eta=90.4, at=(NOW + timedelta(seconds=9)).isoformat()), "5/10", "1m30s"),
        (Progress(step=5, at=NOW.isoformat()), "5", "-"),
    ],
)
def test_the_time_left_is_counted_from_now(progress: Progress | None, step: str, left: str) -> None:
    """A training that should be over, and says nothing, has none; a node's clock may be ahead."""
    row = {**row_of(recorded("pytorchjob-running")), "progress": progress and progress.to_dict()}

    shown = tables.jobs([row], now=NOW)

    assert (column(shown, "STEP"), column(shown, "ETA")) == ([step], [left])
