"""Tests of a training's progress in `list`, in `get` and of a handle: from the last lines of rank 0's log."""

from __future__ import annotations

import asyncio
import json
import os
import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from cluster.shell import until
from fakes import ScriptedBackend
from ptjob_provider import train
from ptjob_provider.cli import progress
from ptjob_provider.cli.progress import AT_ONCE, FEW_LINES, LINES, of_jobs, read
from ptjob_provider.core.backend import Observation
from ptjob_provider.core.errors import ClusterUnavailable, JobNotFound, PermissionDenied
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.logs import LogCursor, LogLine
from ptjob_provider.core.training_progress import Progress
from rows import each_row
from scripted_node import JOB, REPLICA, at

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence
    from pathlib import Path

    from click.testing import Result

    from machine import Machine
    from ptjob_provider.core.identity import Manifest

TRAINS = """
import os, time
if os.environ["RANK"] == "0":
    for step in range(0, 130, 10):
        print(f"step {step}/1000 loss: {2 - step / 100} acc: {step / 1000} lr: 0.1 grad: 3 heat: 4", flush=True)
time.sleep(600)
"""
HOSTILE = r"""
import json, os, sys, time
tag = "\x1b[2J\x1b]0;owned\x07loss\n"
for step in range(3):
    values = {"step": step, "max_steps": 9, "loss": step, tag: step, "big": -1e308 + step * 1e308, "nan": float("nan")}
    print(json.dumps({**values, "int": 10**400, "\ud800": step}), flush=True)
print("x" * 100_000, flush=True)
time.sleep(600)
"""
TRAIN_JOB = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "spec": {"trainer": {"numNodes": 1}}}


def job(name: str = "digits", *, phase: str = "Running", namespace: str = "team", **fields: Any) -> Manifest:
    """Return a job in a phase."""
    meta = {"namespace": namespace, "name": name, "uid": name, "creationTimestamp": at(0), "labels": {}}
    status = {"conditions": [{"type": phase, "status": "True"}]}
    made = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", **JOB, "metadata": meta, "status": status}
    return {**made, **fields}


def pod(name: str = REPLICA, phase: str = "Running", **labels: str) -> Manifest:
    return {"metadata": {"name": name, "uid": name, "labels": labels}, "spec": {}, "status": {"phase": phase}}


class CountingInspector:
    """Stand-in for a cluster's inspector: it counts the requests for logs.

    Attributes:
        asked: pod, container and number of lines of each request.
        answers: what a pod's log has, or the error of its request; "step 3/4" by default.
    """

    def __init__(self, **answers: str | Exception) -> None:
        self.asked: list[tuple[str, str, int | None]] = []
        self.answers = answers

    async def container_log(
        self, ref: JobRef, pod: str, container: str, *, follow: bool, tail: int | None = None
    ) -> AsyncGenerator[LogLine, None]:
        assert not follow
        self.asked.append((pod, container, tail))
        answer = self.answers.get(ref.name, "step 3/4")
        if isinstance(answer, Exception):
            raise answer
        cursor = LogCursor(pod_uid="u", container=container, restart_count=0, timestamp=at(3), ordinal=0)
        yield LogLine(text=answer, timestamp=at(3), cursor=cursor)


def backend_with(*jobs: Manifest) -> ScriptedBackend:
    backend = ScriptedBackend()
    backend.jobs = {("team", each["metadata"]["name"]): each for each in jobs}
    return backend


async def no_pods(_: JobRef) -> Sequence[Manifest]:
    raise AssertionError("a PyTorchJob's pods have its replicas' names")


def plain(shown: str) -> str:
    """Return what a terminal got without its colours."""
    return re.sub(r"\x1b\[[\d;]*m", "", shown)


def column(table: str, heading: str) -> list[str]:
    """Return the cells below a heading."""
    head, *rows = table.splitlines()
    begin = head.index(heading)
    return [re.split(r" {2,}", row[begin:])[0] for row in rows]


# --- the list


def test_a_list_asks_for_no_log_but_with_the_flag_for_one_of_each_running_job(ptjob: Callable[..., Result]) -> None:
    empty = job("empty", spec={"pytorchReplicaSpecs": {}})
    jobs = [job("a"), job("b"), job("over", phase="Succeeded"), job("waits", phase="Created"), empty]
    plain, asked = CountingInspector(), CountingInspector()

    without = ptjob(backend_with(*jobs), "list", inspector=plain)
    with_progress = ptjob(backend_with(*jobs), "list", "--progress", inspector=asked)
    named = ptjob(backend_with(*jobs), "list", "--progress", "-o", "name", inspector=plain)

    assert plain.asked == []
    assert asked.asked == [(f"{name}-master-0", "pytorch", FEW_LINES) for name in ("a", "b")]
    assert "STEP" not in without.stdout
    assert column(with_progress.stdout, "STEP") == ["3/4", "3/4", "-", "-", "-"]
    assert named.stdout.split() == ["a", "b", "over", "waits", "empty"]


def test_a_list_shows_each_jobs_step(ptjob: Callable[..., Result]) -> None:
    """`-`: the log says nothing, or cannot be read, which one line says of all."""
    inspector = CountingInspector(
        bar="Training:  50%|# | 5/10 [00:05<00:05,  1.00s/it]",
        epochs="epoch 3/12 loss: 0.3",
        gone=JobNotFound("gone"),
        refused=PermissionDenied("pods/log get is not allowed"),
        says="hello",
    )
    jobs = [job(name) for name in ("bar", "epochs", "gone", "refused", "says")]

    shown = ptjob(backend_with(*jobs), "list", "--progress", inspector=inspector)
    told = json.loads(ptjob(backend_with(*jobs), "list", "--progress", "-o", "json", inspector=inspector).stdout)

    assert column(shown.stdout, "STEP") == ["5/10", "epoch 3/12", "-", "-", "-"]
    assert shown.stderr == "── 2 of 5 logs could not be read: gone\n"
    assert [row["progress"] and row["progress"]["step"] for row in told] == [5, None, None, None, None]
    assert told[0]["progress"]["eta"] == 5.0


def test_a_train_jobs_pod_is_found_by_its_replica(ptjob: Callable[..., Result]) -> None:
    """Its name ends in characters that the job does not tell; its runtime names the container."""
    made = job(**TRAIN_JOB, status={"jobsStatus": [{"name": "node", "active": 1, "ready": 1}]})
    backend, inspector = backend_with(made), CountingInspector()
    labels = {"jobset.sigs.k8s.io/jobset-name": "digits", "batch.kubernetes.io/job-completion-index": "0"}
    own = {**pod("digits-node-0-0-x7f2k", **labels), "spec": {"containers": [{"name": "main"}, {"name": "proxy"}]}}
    backend.worlds = [Observation(job=made, pods=[own])]

    ptjob(backend, "list", "--progress", inspector=inspector)

    assert inspector.asked == [("digits-node-0-0-x7f2k", "main", FEW_LINES)]


def test_trainer_status_counts_more_than_the_log(ptjob: Callable[..., Result]) -> None:
    """A list asks for no log then."""
    reported = {"progressPercentage": 45, "estimatedRemainingSeconds": 795, "lastUpdatedTime": at(0)}
    made = job(**TRAIN_JOB, status={"jobsStatus": [{"name": "node", "ready": 1}], "trainerStatus": reported})
    backend, inspector = backend_with(made), CountingInspector()
    backend.worlds = [Observation(job=made)]

    listed = ptjob(backend, "list", "--progress", inspector=inspector)
    asked = ptjob(backend, "get", "digits", "-o", "json", "--no-progress", inspector=inspector)
    told = json.loads(asked.stdout)

    assert column(listed.stdout, "STEP") == ["45/100"]
    assert told["trainer_status"] == reported
    assert [told["progress"][key] for key in ("step", "eta", "source")] == [45, 795, "trainerStatus"]
    assert inspector.asked == []


@pytest.mark.skips_waits
async def test_a_node_that_does_not_answer_holds_up_neither_a_list_nor_other_jobs() -> None:
    """It has as many jobs as a node has pods, and they come first."""

    class Silent(CountingInspector):
        async def container_log(self, ref: JobRef, *given: Any, **more: Any) -> AsyncGenerator[LogLine, None]:
            if ref.namespace == "silent":
                await asyncio.Event().wait()
            async for line in super().container_log(ref, *given, **more):
                yield line

    silent, healthy = [job(f"job-{n}", namespace="silent") for n in range(110)], [job("job-x")]

    found = await of_jobs(Silent(), [*silent, *healthy], no_pods)  # type: ignore[arg-type]

    assert [type(each) for each in found] == [ClusterUnavailable] * 110 + [Progress]
    assert str(found[0]) == "silent/job-0: rank 0's log did not arrive within 5 s"


@pytest.mark.skips_waits
async def test_a_thousand_jobs_are_read_a_few_at_a_time() -> None:
    now, most = 0, 0

    class Slow(CountingInspector):
        async def container_log(self, *given: Any, **more: Any) -> AsyncGenerator[LogLine, None]:
            nonlocal now, most
            now, most = now + 1, max(most, now + 1)
            await asyncio.sleep(0.01)
            now -= 1
            async for line in super().container_log(*given, **more):
                yield line

    found = await of_jobs(Slow(), [job(f"job-{n}") for n in range(1000)], no_pods)  # type: ignore[arg-type]

    assert all(isinstance(each, Progress) for each in found)
    assert most == AT_ONCE


# --- one log


async def test_a_log_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lines are there as soon as they are read, so that nothing is ever waited for."""

    class Endless(CountingInspector):
        async def container_log(self, *given: Any, **more: Any) -> AsyncGenerator[LogLine, None]:
            (line,) = [line async for line in super().container_log(*given, **more)]
            while True:
                yield line

    monkeypatch.setattr(progress, "ANSWER", 0.1)
    with pytest.raises(ClusterUnavailable, match="did not arrive"):
        await read(Endless(), JobRef.of(job()), (REPLICA, "pytorch"))  # type: ignore[arg-type]


# --- one job


def wait_for_line(machine: Machine, text: str) -> None:
    until("its lines", lambda: text in machine.ptjob("logs", "trains").stdout, timeout=60)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a log take as long to read as a busy machine needs."""
    monkeypatch.setattr(progress, "ANSWER", 300)


@pytest.fixture
def trains(machine: Machine, patient: None) -> Machine:
    """Return a machine with a job that has reached step 120 of 1,000."""
    machine.submit("trains", TRAINS)
    wait_for_line(machine, "step 120/1000")
    return machine


def test_a_job_shows_its_progress_and_four_curves_at_a_terminal(trains: Machine) -> None:
    narrow, wide = ({**os.environ, "COLUMNS": columns} for columns in ("60", "160"))

    shown = plain(trains.at_terminal("get", "trains", env=narrow)).splitlines()
    side_by_side = plain(trains.at_terminal("get", "trains", env=wide))

    (progress,) = (line for line in shown if line.startswith("progress"))
    assert progress.startswith("progress  step 120/1000 (12%) · ")
    titles = [match[1] for line in shown if (match := re.match(r"╭─+ (.*) ─+╮$", line))]
    assert titles == ["loss 0.8", "acc 0.12", "lr 0.1", "grad 3"], "the loss first, and four at most"
    assert re.search(r"╭─+ loss 0.8 ─+╮╭─+ acc 0.12 ─+╮╭─+ lr 0.1 ─+╮╭─+ grad 3 ─+╮", side_by_side)
    assert re.search(r"╰─+ 0.8 to 2, step 0 to 120 ─+╯", side_by_side)
    assert any("\u2801" <= each <= "\u28ff" for each in side_by_side)
    assert all(len(line) <= 60 for line in shown)


def test_a_terminal_without_unicode_gets_no_dots(trains: Machine) -> None:
    shown = trains.at_terminal("get", "trains", env={**os.environ, "PYTHONIOENCODING": "ascii:replace"})

    assert "step 120/1000" in shown
    assert "0.8 to 2" not in shown


def test_programs_get_the_progress_as_data(trains: Machine) -> None:
    """Without a terminal there are no curves."""
    shown = trains.ptjob("get", "trains").stdout
    told = yaml.safe_load(trains.ptjob("get", "trains", "-o", "yaml").stdout)["progress"]

    assert "step 120/1000 (12%)" in shown
    assert "╭" not in shown
    assert (told["step"], told["total"], told["metrics"]["loss"], told["source"]) == (120, 1000, 0.8, "line")


def test_a_pattern_is_read_instead_and_no_progress_reads_nothing(trains: Machine) -> None:
    pattern = r"step (?P<epoch>\d+)/"

    assert "progress  epoch 120 (" in trains.ptjob("get", "trains", "--progress", pattern).stdout
    assert "progress" not in trains.ptjob("get", "trains", "--no-progress").stdout
    refused = trains.ptjob("get", "trains", "--progress", "(")
    assert (refused.exit_code, "is not a regular expression of RE2" in refused.stderr) == (2, True)


def test_a_job_that_is_over_has_no_time_left(machine: Machine) -> None:
    machine.submit("trains", TRAINS.replace("time.sleep(600)", ""))
    machine.finish("trains")

    told = json.loads(machine.ptjob("get", "trains", "-o", "json").stdout)["progress"]

    assert (told["step"], told["eta"]) == (120, None)


def test_a_job_that_says_nothing_has_no_line(ended: Machine) -> None:
    assert "progress" not in ended.ptjob("get", "good").stdout
    assert json.loads(ended.ptjob("get", "good", "-o", "json").stdout)["progress"] is None


def test_a_log_that_cannot_be_read_is_named_and_the_rest_is_shown(ptjob: Callable[..., Result]) -> None:
    backend, why = backend_with(job()), PermissionDenied("pods/log get is not allowed")
    backend.worlds = [Observation(job=job(), pods=[pod()])]

    shown = ptjob(backend, "get", "digits", inspector=CountingInspector(digits=why))
    told = ptjob(backend, "get", "digits", "-o", "json", inspector=CountingInspector(digits=why))

    assert re.search(r"(?m)^progress +not known: pods/log get is not allowed$", shown.stdout)
    assert re.search(rf"(?m)^0 +{REPLICA} +Running", shown.stdout)
    assert told.stderr == "── progress is not known: pods/log get is not allowed\n"
    assert json.loads(told.stdout)["progress"] is None
    assert (shown.exit_code, told.exit_code) == (0, 0)


@each_row(
    ("pods", "asked"),
    [
        ([], []),
        ([pod(phase="Pending")], []),
        ([pod("digits-worker-0")], []),
        ([pod()], [(REPLICA, "pytorch", LINES)]),
    ],
)
def test_the_log_of_a_pod_is_asked_for_once_and_not_before_it_has_started(
    ptjob: Callable[..., Result], pods: list[Manifest], asked: list[Any]
) -> None:
    backend, inspector = backend_with(job()), CountingInspector()
    backend.worlds = [Observation(job=job(), pods=pods)]

    shown = ptjob(backend, "get", "digits", inspector=inspector).stdout

    assert inspector.asked == asked
    assert ("progress" in shown) is bool(asked)


@pytest.mark.usefixtures("patient")
def test_a_hostile_log_neither_breaks_the_terminal_nor_what_programs_read(machine: Machine) -> None:
    machine.submit("trains", HOSTILE)
    wait_for_line(machine, "xxx")

    shown = machine.at_terminal("get", "trains", env={**os.environ, "COLUMNS": "120"})
    told = json.loads(machine.ptjob("get", "trains", "-o", "json").stdout)
    listed = machine.ptjob("list", "--progress").stdout

    assert set(re.findall(r"\x1b[^m]*m?", shown)) == set(re.findall(r"\x1b\[[\d;]*m", shown)), "only our colours"
    assert r"─ \x1b[2J\x1b]0;owned\x07loss  2 ─" in plain(shown)
    assert told["progress"]["step"] == 2
    assert {"loss": 2.0, "\ufffd": 2.0}.items() <= told["progress"]["metrics"].items()
    assert column(listed, "STEP") == ["2/9"]


# --- a handle


def steps(path: str) -> None:
    import time  # noqa: PLC0415 - a function that is sent brings its imports
    from pathlib import Path  # noqa: PLC0415

    print("update 3 of 4", flush=True)  # noqa: T201
    while not Path(path).exists():
        time.sleep(0.05)


def test_a_handle_says_how_far_its_training_is(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "airflow"))
    monkeypatch.setenv("PTJOB_LOCAL_ROOT", str(machine.root))
    pattern = r"update (?P<step>\d+) of (?P<total>\d+)"

    plain, job = (train(steps, str(tmp_path / "go"), submit=True, progress=each) for each in (None, pattern))
    until("its line", lambda: "update" in job.logs() and "update" in plain.logs(), timeout=60)

    progress = job.progress()
    assert progress is not None
    assert (progress.step, progress.total, progress.source) == (3, 4, "progress=")
    assert plain.progress() is None
    (tmp_path / "go").touch()
