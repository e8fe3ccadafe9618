"""Fixtures: one Airflow per session, with api-server, scheduler, dag-processor and triggerer as separate processes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

import postgresql
from demo.stack import Stack, StackConfig
from installed import ROOT
from task_run import TaskRun, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ptjob_provider.core.identity import JobRef

HERE = Path(__file__).parent
WAITS = {"wait": "running", "defer": "deferred"}
"""The first word of a DAG id, and the state of its task while the job runs."""

CANARY = "canary-8f14e45fceea167a"
"""A secret that must not appear in any log, XCom, rendered field, trigger row or state file."""


@dataclass(frozen=True)
class Lab:
    """The Airflow stack, and the claim that jobs and tests share."""

    stack: Stack
    root: Path

    @property
    def work(self) -> Path:
        """The directory of the claim that every job mounts at /claim."""
        return self.root / "claims" / "default" / "runs"

    def start(self, dag_id: str, *args: str, task_id: str = "train", **conf: Any) -> TaskRun:
        """Start a run of the DAG; its job runs the program with these arguments."""
        return TaskRun(self.stack, dag_id, self.stack.api.trigger(dag_id, {"args": list(args), **conf}), task_id)

    def release(self, name: str) -> None:
        """Create the file that jobs wait for."""
        (self.work / name).touch()


def started(lab: Lab, dag_id: str, name: str) -> TaskRun:
    """Start a job that waits for a file, and return once its first log lines are in the task's log."""
    task = lab.start(dag_id, "wait_for", name, workers=2)
    task.wait(WAITS[dag_id.split("_", maxsplit=1)[0]])
    task.wait_for_line("tick 0001")
    return task


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory, tell: Callable[[str], None]) -> Iterator[Lab]:
    """Start the stack; afterwards stop it and all its jobs."""
    root = tmp_path_factory.mktemp("airflow")
    with postgresql.database_if_possible(tell) as address, lab_in(root, database_url=address) as lab:
        yield lab


@dataclass(frozen=True)
class Retried:
    """A task whose job lost its supervisor, after its retry; its state and progress while the first job ran."""

    task: TaskRun
    ref: JobRef
    state: str | None
    progress: dict[str, Any]


@pytest.fixture(scope="session")
def retried(lab: Lab) -> dict[str, Retried]:
    """Kill the supervisor of a job with a checkpoint in each mode, and wait until its retry has succeeded."""
    tasks = {
        mode: lab.start(f"{mode}_1", "resume", "never", checkpoints=f"pvc://runs/resumed-{mode}") for mode in WAITS
    }
    found = {}
    for mode, task in tasks.items():
        until(lambda task=task: (task.xcom("progress") or {}).get("step") == 2, what="the third step in the database")
        found[mode] = Retried(task, task.ref, task.state, task.xcom("progress"))
    for each in found.values():
        supervisor_of(each.ref.name).kill()
    for each in found.values():
        assert each.task.wait() == "success", each.task.text()
    return found


def supervisor_of(name: str) -> psutil.Process:
    """Return the supervisor process of the job."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if "ptjob_provider.core.local.supervisor" in words and name in words[-1]:
                return process
    raise AssertionError(f"no supervisor of {name}")


@contextlib.contextmanager
def lab_in(root: Path, *, database_url: str, **more: str) -> Iterator[Lab]:
    """Start a stack on this database with extra options; afterwards stop it and all its jobs."""
    try:
        with Stack(_config(root, database_url, more)) as stack:
            for dag_id in ("defer_secret", "deleted_retrain", "ptjob_maintenance"):  # the last DAG of each file
                stack.api.wait_for_dag(dag_id)
            stack.api.unpause("ptjob_maintenance")
            lab = Lab(stack, root / "jobs")
            lab.work.mkdir(parents=True)
            yield lab
    finally:
        _end_jobs(root / "jobs")


def _config(root: Path, database_url: str, more: Mapping[str, str]) -> StackConfig:
    dags = root / "dags"
    shutil.copytree(HERE / "dags", dags, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "dags" / "ptjob_maintenance.py", dags)
    settings = {
        "PTJOB__BACKEND": "local",
        "PTJOB__LOCAL_ROOT": str(root / "jobs"),
        "PTJOB__LOCAL_IMAGES": json.dumps({"program": str(HERE / "image")}),
        "PTJOB__LOCAL_SECRETS": json.dumps({"credentials": {"token": CANARY}}),
        "SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.3",
        "TRIGGERER__JOB_HEARTBEAT_SEC": "2",
        "TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "10",
        "CORE__PARALLELISM": "5",
        "DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",  # the files do not change
        **more,
    }
    connection = json.dumps({"conn_type": "kubernetes", "extra": {"kube_config": CANARY}})
    return StackConfig(
        home=root / "home",
        dags=dags,
        database_url=database_url,
        settings={f"AIRFLOW__{name}": value for name, value in settings.items()} | {"AIRFLOW_CONN_CANARY": connection},
        paused_at_creation=False,
    )


def _end_jobs(root: Path) -> None:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # children of a killed process may be gone
            if process.pid != os.getpid() and any(str(root) in word for word in process.cmdline()):
                process.kill()
