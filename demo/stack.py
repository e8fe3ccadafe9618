"""Run Airflow's components as separate processes with a private AIRFLOW_HOME, for any DAG.

Each component leads a session of its own, so that all its forks (workers, task processes) can be found, frozen and
ended by process id, and other processes are never touched.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psutil

from demo.processes import Component, StackFailed, end_processes, is_same, session_processes
from demo.rest import AirflowApi
from ptjob_provider.core.local.devices import PortReservation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType

COMPONENTS = ("api-server", "scheduler", "dag-processor", "triggerer")
HEALTH_NAMES = {"scheduler": "scheduler", "dag-processor": "dag_processor", "triggerer": "triggerer"}


@dataclass(frozen=True, kw_only=True)
class StackConfig:
    """Configuration of one deployment. Two stacks with different homes are independent.

    Attributes:
        home: AIRFLOW_HOME, with the database (SQLite), all logs and the list of processes.
        dags: the DAG folder.
        database_url: URL of a migrated database to use instead of the SQLite file in `home`.
        settings: further environment variables of every component, such as `AIRFLOW__PTJOB__BACKEND`.
        python: an interpreter that has Airflow.
        paused_at_creation: whether new DAGs are paused at first.
        parallelism: worker processes of the LocalExecutor.
        serve_logs: whether scheduler and triggerer also serve their log files over HTTP; otherwise the API server reads
            them from `home`.
        port: port of the API server and its page; 0: a free one.
        migrated_database: path at which a migrated, empty SQLite file is kept between runs, which saves five seconds.
    """

    home: Path
    dags: Path
    database_url: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    python: Path = Path(sys.executable)
    paused_at_creation: bool = True
    parallelism: int = 4
    serve_logs: bool = False
    port: int = 0
    migrated_database: Path | None = None

    @property
    def logs(self) -> Path:
        """Return the directory of the components' own output; task logs are in `home/logs`."""
        return self.home / "components"


class Stack:
    """Runs api-server, scheduler, dag-processor and triggerer of one home; a context manager that stops all of them.

    A port is reserved until the stack is stopped, because the API server binds it only half a minute after it was
    chosen, and again after each restart.
    """

    def __init__(self, config: StackConfig) -> None:
        self.config = config
        self._reservation = PortReservation()
        self.port = config.port or self._reservation.port
        self.url = f"http://127.0.0.1:{self.port}"
        self.env = environment(config, self.port)
        self.api = AirflowApi(self.url)
        self.components = {name: self.component(name) for name in COMPONENTS}

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __getitem__(self, name: str) -> Component:
        return self.components[name]

    @property
    def database_url(self) -> str:
        """Return the SQLAlchemy URL of Airflow's database; it may contain a password."""
        return self.env["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]

    def component(self, name: str, *, label: str = "") -> Component:
        """Return a component that is not started; `label` names a second one of the same kind (`triggerer-2`)."""
        argv = [str(self.config.python), "-m", "airflow", name]
        if not self.config.serve_logs and name in {"scheduler", "triggerer"}:
            argv.append("--skip-serve-logs")
        return Component(label or name, argv, self.env, self.config.logs / f"{label or name}.log")

    def add(self, name: str, label: str) -> Component:
        """Start a second component of one kind; it is stopped with the others."""
        extra = self.components[label] = self.component(name, label=label)
        extra.start()
        self._write_pid_file()
        return extra

    def start(self, tell: Callable[[str], None] = lambda _: None) -> None:
        """Migrate the database, start all components and wait until they are healthy; call `tell` for each step.

        Raises:
            StackFailed: a component failed; the message has the tail of its log.
        """
        self.config.home.mkdir(parents=True, exist_ok=True)
        stop_leftovers(self.config.home)
        self.migrate()
        tell("database")
        for component in self.components.values():
            component.start()
        self._write_pid_file()
        self.wait_healthy(tell=tell)

    def stop(self) -> None:
        """Stop every component that was started, the API server last, and wait for their end."""
        started = [component for component in self.components.values() if component.started_at]
        last = [component for component in started if component.name == "api-server"]
        first = [component for component in started if component not in last]
        for component in first:
            component.terminate()
        for component in first:
            component.wait_stopped()
        for component in last:
            component.stop()
        self.api.close()
        self._reservation.close()
        pid_file(self.config.home).unlink(missing_ok=True)

    def airflow(self, *args: str, timeout: float = 300) -> str:
        """Run one `airflow` command in this home and return its output.

        Raises:
            StackFailed: the command failed; the message has its output.
        """
        command = [str(self.config.python), "-m", "airflow", *args]
        done = subprocess.run(
            command,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode:
            raise StackFailed(f"airflow {' '.join(args)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def migrate(self) -> None:
        """Create the SQLite file with Airflow's schema, as a copy of the kept one if that exists."""
        if self.config.database_url:
            return
        target = self.config.home / "airflow.db"
        kept = self.config.migrated_database
        if kept is None:
            self.airflow("db", "migrate")
            return
        if target.exists():
            return
        if not kept.exists():
            self.airflow("db", "migrate")
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(target, kept)
            return
        shutil.copy2(kept, target)

    def wait_healthy(
        self, names: Iterable[str] = COMPONENTS, *, timeout: float = 900, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        """Return once each of these components has reported healthy since its last start.

        Raises:
            StackFailed: a component has ended, or is not healthy in time.
        """
        missing = list(names)
        deadline = time.monotonic() + timeout
        while missing:
            for name in [name for name in missing if self._is_healthy(name)]:
                missing.remove(name)
                tell(name)
            if time.monotonic() > deadline:
                raise StackFailed(f"{missing[0]} is not healthy after {timeout:.0f} s:\n{self[missing[0]].tail()}")
            time.sleep(0.2)

    def check_alive(self) -> None:
        """Check that every component that was started still runs.

        Raises:
            StackFailed: a component has ended; the message has the tail of its log.
        """
        for name, component in self.components.items():
            if component.started_at and not component.is_running:
                raise StackFailed(f"{name} has ended; the last lines of {component.log}:\n{component.tail()}")

    def _is_healthy(self, name: str) -> bool:
        component = self[name]
        if not component.is_running:
            raise StackFailed(f"{name} has ended; the last lines of {component.log}:\n{component.tail()}")
        health = self.api.health()
        if health is None or name == "api-server":
            return health is not None
        own = health[HEALTH_NAMES[name]]
        return own.status == "healthy" and own.heartbeat > component.started_at

    def _write_pid_file(self) -> None:
        pids = {name: component.pid for name, component in self.components.items() if component.is_running}
        pids["starter"] = os.getpid()
        entries = {name: {"pid": pid, "created": psutil.Process(pid).create_time()} for name, pid in pids.items()}
        pid_file(self.config.home).write_text(json.dumps(entries))


def environment(config: StackConfig, port: int) -> dict[str, str]:
    """Return the environment of every component: this process's without Airflow's variables, plus this home's."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    loopback = ",".join(filter(None, [inherited.get("NO_PROXY", ""), "127.0.0.1", "localhost"]))
    own = {
        "AIRFLOW_HOME": str(config.home),
        "PATH": f"{config.python.parent}{os.pathsep}{inherited.get('PATH', os.defpath)}",
        "NO_PROXY": loopback,
        "no_proxy": loopback,
        "PYTHONUNBUFFERED": "1",
    }
    options = {f"AIRFLOW__{name}": value for name, value in airflow_options(config, port).items()}
    return {**inherited, **own, **options, **config.settings}


def airflow_options(config: StackConfig, port: int) -> dict[str, str]:
    """Return Airflow's options as `SECTION__OPTION`: loopback only, every user an administrator, quick parsing."""
    secret = kept_secret(config.home)
    return {
        "CORE__LOAD_EXAMPLES": "False",
        "CORE__DAGS_FOLDER": str(config.dags),
        "CORE__DAGS_ARE_PAUSED_AT_CREATION": str(config.paused_at_creation),
        "CORE__EXECUTOR": "LocalExecutor",
        "CORE__PARALLELISM": str(config.parallelism),
        "CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "CORE__FERNET_KEY": base64.urlsafe_b64encode(hashlib.sha256(secret.encode()).digest()).decode(),
        "API__HOST": "127.0.0.1",
        "API__PORT": str(port),
        "API__BASE_URL": f"http://127.0.0.1:{port}",
        "API__SECRET_KEY": secret,
        "API_AUTH__JWT_SECRET": secret,
        # SQLite's default lock timeout of 5 s is too short if many tasks begin at once
        "DATABASE__SQL_ALCHEMY_CONN": config.database_url or f"sqlite:///{config.home / 'airflow.db'}?timeout=60",
        "DAG_PROCESSOR__REFRESH_INTERVAL": "5",
        "DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "10",
        "LOGGING__BASE_LOG_FOLDER": str(config.home / "logs"),
        "LOGGING__WORKER_LOG_SERVER_PORT": str(free_port()),
        "LOGGING__TRIGGER_LOG_SERVER_PORT": str(free_port()),
        "USAGE_DATA_COLLECTION__ENABLED": "False",
        # on a busy machine, an API server that has just started answers its first requests after 20 s
        "WORKERS__EXECUTION_API_TIMEOUT": "30",
    }


def kept_secret(home: Path) -> str:
    """Return the home's secret, which is created on the first call and is readable only by its owner."""
    path = home / "secret"
    home.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(secrets.token_hex(32))
    return path.read_text()


def free_port() -> int:
    """Return a TCP port that is free now, outside the range that Linux uses for outgoing connections."""
    reservation = PortReservation()
    reservation.close()
    return reservation.port


def pid_file(home: Path) -> Path:
    """Return the path of the list of a home's processes; a new run reads it if the run before was killed."""
    return home / "processes.json"


def stop_leftovers(home: Path) -> list[str]:
    """End the processes that a killed run of this home left behind, and return their names.

    A process is ended only if its creation time matches too, and none is while the process that started them lives.
    """
    if not pid_file(home).exists():
        return []
    left = json.loads(pid_file(home).read_text())
    starter = left.pop("starter")
    if starter["pid"] != os.getpid() and is_same(**starter):
        return []
    stopped = [name for name, was in left.items() if is_same(**was)]
    end_processes([process for name in stopped for process in session_processes(left[name]["pid"])], grace=10)
    pid_file(home).unlink()
    return stopped
