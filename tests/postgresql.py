"""A PostgreSQL server for tests: on the loopback address, in its own folder, deleted with its data afterwards.

Its only database has Airflow's tables: they are created once, and each server starts with a copy of the files.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from cluster import debian
from cluster.fixtures import REQUIRED, is_required
from cluster.layout import Layout
from cluster.shell import ClusterFailed, bare_environment, locked, run, write
from installed import ROOT
from ptjob_provider.core.local.devices import PortReservation
from serving import serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PACKAGE = "postgresql"
CONSTRAINTS = ROOT / "constraints" / "airflow.txt"
SERVICE_USER = "postgres"
"""User that the package creates. The server refuses to run as root."""

OWNER = "airflow"
"""Name of the server's administrator and of its only database."""

SETTINGS = {
    "fsync": "off",  # the data need not survive a crash
    "listen_addresses": "127.0.0.1",
    "max_connections": "300",
    "unix_socket_directories": "",
}


def programs() -> Path | None:
    """Return the folder of the newest installed server's programs, or None."""
    packaged = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    named = shutil.which("initdb")
    if packaged:
        return packaged[-1].parent
    return Path(named).resolve().parent if named else None


def unmet() -> str:
    """Return one line that says why this machine cannot run a server, or ""."""
    if programs():
        return ""
    if os.geteuid() != 0:
        return f"PostgreSQL is not installed: install the package {PACKAGE}, or run this as root"
    return debian.unmet()


@contextlib.contextmanager
def database(tell: Callable[[str], None] = lambda _: None) -> Iterator[str]:
    """Run a server with one database that has Airflow's empty tables; yield its address for SQLAlchemy.

    Raises:
        ClusterFailed: The server could not be installed or did not start; with the end of its output.
    """
    with debian.alone():
        found = programs()
    if found is None:
        debian.install((PACKAGE,), tell)
        found = programs()
    if found is None:
        raise ClusterFailed(f"the package {PACKAGE} brought no initdb")
    template = _migrated(found, tell)
    with _server(found) as server:
        run(["cp", "-a", f"{template}/.", str(server.folder)], timeout=120)
        with server.running("psql", "--command=SELECT 1", OWNER):
            try:
                yield server.address
            finally:
                server.stop_at_once()


def _migrated(found: Path, tell: Callable[[str], None]) -> Path:
    """Return the folder of a stopped server after `airflow db migrate`; it is cached between runs."""
    made_by = f"{found} {sys.version} {version('apache-airflow-core')}".encode()
    what = hashlib.sha256(made_by + CONSTRAINTS.read_bytes()).hexdigest()[:16]
    cache = Layout.of(os.environ).cache
    kept = cache / f"postgresql-{what}"
    with locked(cache / "postgresql.lock"):
        if not kept.exists():
            tell("making Airflow's tables in PostgreSQL (about 20 s, once)")
            with _server(found) as server:
                server.make()
                with server.running("createdb", OWNER):  # writes all data to files at the end
                    server.migrate()
                unfinished = kept.with_suffix(".unfinished")
                shutil.rmtree(unfinished, ignore_errors=True)
                run(["cp", "-a", str(server.folder), str(unfinished)], timeout=120)
            unfinished.rename(kept)
    return kept


@contextlib.contextmanager
def _server(found: Path) -> Iterator[Server]:
    with (
        tempfile.TemporaryDirectory(prefix="ptjob-postgresql-") as folder,
        contextlib.closing(PortReservation()) as reservation,
    ):
        yield Server(found, Path(folder), reservation.port)


@contextlib.contextmanager
def database_if_possible(tell: Callable[[str], None]) -> Iterator[str]:
    """Run a server if this machine can; otherwise yield "", and Airflow uses SQLite.

    Airflow 3.3.2 with SQLite sometimes blocks itself: its API server logs a click from its event loop, and waits there
    for a thread that has written and needs the loop to commit. The lock's timeout ends this and the request fails with
    500 (twice in 120 tasks that were marked).

    Raises:
        ClusterFailed: PTJOB_REQUIRE_CLUSTER=1, and this machine cannot run a server; or as `database`.
    """
    if reason := unmet():
        if is_required():
            raise ClusterFailed(f"{REQUIRED}=1, but {reason}")
        tell(f"Airflow is on SQLite: {reason}")
        yield ""
        return
    with database(tell) as address:
        yield address


@dataclass(frozen=True)
class Server:
    """A server: its programs, its folder, and a port that is reserved until the server has ended."""

    programs: Path
    folder: Path
    port: int

    @property
    def password(self) -> str:
        """The administrator's password, which is stored next to the data."""
        return (self.folder / "password").read_text()

    @property
    def address(self) -> str:
        """The database's address for SQLAlchemy."""
        return f"postgresql+psycopg2://{OWNER}:{self.password}@127.0.0.1:{self.port}/{OWNER}"

    def make(self) -> None:
        """Create the data directory."""
        secret = write(self.folder / "password", secrets.token_hex(16))
        if os.geteuid() == 0:
            for path in (self.folder, secret):
                shutil.chown(path, SERVICE_USER, SERVICE_USER)
        how = ("--auth=scram-sha-256", f"--pwfile={secret}", f"--username={OWNER}", "--encoding=UTF8", "--no-sync")
        run(self._as_user("initdb", f"--pgdata={self.folder / 'data'}", *how), timeout=120, env=self._env())

    def migrate(self) -> None:
        """Create Airflow's tables."""
        with tempfile.TemporaryDirectory(prefix="ptjob-migrate-") as home:
            options = {"AIRFLOW_HOME": home, "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": self.address}
            run([sys.executable, "-m", "airflow", "db", "migrate"], timeout=300, env={**self._env(), **options})

    @contextlib.contextmanager
    def running(self, program: str, *words: str) -> Iterator[None]:
        """Run the server until the context ends; enter it when this client program has succeeded.

        Raises:
            ClusterFailed: The server ended or did not answer in time.
        """
        settings = [f"--{name}={value}" for name, value in {**SETTINGS, "port": str(self.port)}.items()]
        argv = self._as_user("postgres", "-D", str(self.folder / "data"), *settings)
        where = ("--host=127.0.0.1", f"--port={self.port}", f"--username={OWNER}")
        client = [str(self.programs / program), *where, *words]
        env = {**self._env(), "PGPASSWORD": self.password}
        with serving(
            "PostgreSQL",
            argv,
            env=self._env(),
            log=self.folder / "log",
            answers=lambda: run(client, timeout=30, env=env),
            grace=60,
        ):
            yield

    def stop_at_once(self) -> None:
        """Stop the server without a final checkpoint, and without waiting for its clients; it frees its memory."""
        stop = self._as_user("pg_ctl", "stop", "--mode=immediate", f"--pgdata={self.folder / 'data'}")
        with contextlib.suppress(ClusterFailed):  # it has ended already
            run(stop, timeout=60, env=self._env())

    def _as_user(self, program: str, *arguments: str) -> list[str]:
        argv = [str(self.programs / program), *arguments]
        if os.geteuid() != 0:
            return argv
        return ["setpriv", f"--reuid={SERVICE_USER}", f"--regid={SERVICE_USER}", "--clear-groups", "--", *argv]

    def _env(self) -> dict[str, str]:
        return bare_environment(self.folder)
