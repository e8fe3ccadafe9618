"""The environment of the soak: Airflow with two triggerers, PostgreSQL and a real S3 server."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

import postgresql
import s3_server
from demo.stack import Stack, StackConfig
from retraining.judgement import Training

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from retraining.schedule import Drop
    from s3_server import S3Server

HERE = Path(__file__).parent
BUCKET = "training-data"
SOURCE = f"{BUCKET}/incoming"
OVER = {"success", "failed"}
PAGE = 100


def unmet() -> str:
    """Return why this machine cannot run the soak, in one line; empty if it can."""
    return postgresql.unmet() or s3_server.unmet()


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Access to the running environment.

    Attributes:
        stack: the Airflow stack.
        store: the S3 server.
        work: directory of the claim that all trainings share.
    """

    stack: Stack
    store: S3Server
    work: Path

    def deliver(self, drop: Drop) -> None:
        """Write a batch file by file with its pauses, and its marker last."""
        for (path, data), pause in zip({**drop.files, "_SUCCESS": b""}.items(), drop.pauses, strict=True):
            time.sleep(pause)
            self.store.files.pipe_file(f"{SOURCE}/{drop.name}/{path}", data)

    # --- results

    def is_settled(self) -> bool:
        """Return whether no run is active or queued."""
        return all(run["state"] in OVER for run in self._all("dags/retrain/dagRuns", "dag_runs"))

    def trainings(self) -> list[Training]:
        """Return the trainings, from the notes of rank 0 and the task states in Airflow."""
        tasks = self._all("dags/retrain/dagRuns/~/taskInstances", "task_instances")
        succeeded = {each["dag_run_id"] for each in tasks if each["task_id"] == "train" and each["state"] == "success"}
        notes = [json.loads(path.read_text()) for path in sorted(self.work.glob("notes/*.json"))]
        return [Training(**note, succeeded=note["run_id"] in succeeded) for note in notes]

    def events(self) -> list[str]:
        """Return the batch ids of all of Airflow's asset events, with repetitions; empty while Airflow is busy."""
        found = self.stack.api.asset_events() or ()
        return [batch["id"] for event in found for batch in (event["extra"].get("payload") or {}).get("batches", ())]

    def _all(self, path: str, key: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while True:
            page = self.stack.api.get(path, limit=PAGE, offset=len(found))
            found += page[key]
            if not page[key] or len(found) >= page["total_entries"]:
                return found


@contextlib.contextmanager
def scene(root: Path, *, fates: Sequence[str], poll: float, tell: Callable[[str], None]) -> Iterator[Scene]:
    """Start the environment, with its DAG waiting for batches; afterwards stop it.

    Args:
        root: directory for all files.
        fates: planned ends of the trainings.
        poll: seconds between two polls of a watcher.
        tell: receives progress messages.
    """
    work = root / "jobs" / "claims" / "default" / "runs"
    work.mkdir(parents=True)
    (work / "plan.json").write_text(json.dumps(fates))
    with (
        postgresql.database(tell) as address,
        s3_server.running(tell) as store,
        contextlib.ExitStack() as ends,
    ):
        store.files.mkdir(BUCKET)
        settings = {
            **_settings(root, _secret(store)),
            "AIRFLOW_CONN_LEDGER": _ledger(address),
            "AIRFLOW_CONN_STORE": store.connection(),
            "RETRAINING_SOURCE": f"s3://{SOURCE}",
            "RETRAINING_POLL": str(poll),
        }
        stack = ends.enter_context(Stack(_config(root, address, settings)))
        stack.add("triggerer", "triggerer-2")
        stack.wait_healthy()
        stack.api.wait_for_dag("retrain")
        tell("Airflow is up")
        yield Scene(stack=stack, store=store, work=work)


def _ledger(address: str) -> str:
    """Create the ledger's database and return its connection."""
    engine = sa.create_engine(address, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE DATABASE ledger")
    at = engine.url
    known = {"host": at.host, "port": at.port, "login": at.username, "password": at.password}
    return json.dumps({"conn_type": "postgres", "schema": "ledger", **known})


def _config(root: Path, address: str, settings: Mapping[str, str]) -> StackConfig:
    shutil.copytree(HERE / "dags", root / "dags", ignore=shutil.ignore_patterns("__pycache__"))
    return StackConfig(
        home=root / "home",
        dags=root / "dags",
        database_url=address,
        settings=settings,
        paused_at_creation=False,
    )


def _settings(root: Path, secret: str) -> dict[str, str]:
    """Return Airflow's options: the local back-end, and detection of a lost triggerer within seconds."""
    options = {
        "PTJOB__BACKEND": "local",
        "PTJOB__LOCAL_ROOT": str(root / "jobs"),
        "PTJOB__LOCAL_IMAGES": json.dumps({"training": str(HERE / "image")}),
        "PTJOB__LOCAL_SECRETS": json.dumps({"store": {"options": secret}}),
        "SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.3",
        "TRIGGERER__JOB_HEARTBEAT_SEC": "2",
        "TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "10",
        "DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
    }
    return {f"AIRFLOW__{name}": value for name, value in options.items()}


def _secret(store: S3Server) -> str:
    """Return the storage options of a training."""
    endpoint = {"endpoint_url": store.endpoint}
    return json.dumps({"key": s3_server.OWNER, "secret": store.password, "client_kwargs": endpoint})
