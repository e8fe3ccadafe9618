"""A store that speaks S3, of one's own: MinIO, built from its Go module; gone with all its data afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import httpx

from cluster import binaries
from cluster.binaries import MINIO, Binaries
from cluster.layout import Layout
from cluster.shell import ClusterFailed, bare_environment, last_lines, wait_until
from demo.processes import end_processes, session_processes
from demo.stack import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OWNER = "watcher"


def built() -> Path | None:
    """Return the program, None if it was not built yet."""
    program = Binaries(Layout.of(os.environ).binaries).folder(MINIO) / "minio"
    return program if program.exists() else None


def unmet() -> str:
    """Return in one line why this machine can have no such store, or an empty text."""
    return "" if built() else binaries.go_unmet()


@contextlib.contextmanager
def store(tell: Callable[[str], None] = lambda _: None) -> Iterator[Minio]:
    """Have an empty store.

    Raises:
        ClusterFailed: it could not be built or did not start; with the end of what it said.
    """
    layout = Layout.of(os.environ)
    if built() is None:
        Binaries(layout.binaries).build(tell, [MINIO])
    program = built()
    if program is None:
        raise ClusterFailed(f"the build of {MINIO.name} brought no program")
    with tempfile.TemporaryDirectory(prefix="ptjob-minio-") as folder:
        server = Minio(Path(folder))
        process = server.start(program)
        try:
            server.wait(process)
            yield server
        finally:
            members = session_processes(process.pid)
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            end_processes(members, grace=0)
            process.wait(10)


@dataclass(frozen=True)
class Minio:
    """One server, with one user who may do everything."""

    folder: Path
    port: int = field(default_factory=free_port)
    password: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)

    @property
    def endpoint(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def files(self) -> Any:
        """What writes to it: fsspec's file system, which is not the one under test."""
        return fsspec.filesystem(
            "s3", key=OWNER, secret=self.password, endpoint_url=self.endpoint, use_listings_cache=False
        )

    def connection(self, endpoint: str = "") -> str:
        """Return it as an Airflow connection (JSON, as AIRFLOW_CONN_… takes it), through another address if given."""
        extra = {"endpoint_url": endpoint or self.endpoint, "region_name": "us-east-1"}
        return json.dumps({"conn_type": "aws", "login": OWNER, "password": self.password, "extra": extra})

    def start(self, program: Path) -> subprocess.Popen[bytes]:
        """Start it."""
        argv = [program, "server", "--quiet", "--address", f"127.0.0.1:{self.port}", self.folder / "data"]
        env = {
            **bare_environment(self.folder),
            "MINIO_ROOT_USER": OWNER,
            "MINIO_ROOT_PASSWORD": self.password,
            "MINIO_BROWSER": "off",
            "MINIO_UPDATE": "off",
        }
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                argv, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def wait(self, process: subprocess.Popen[bytes]) -> None:
        """Return once it answers.

        Raises:
            ClusterFailed: it ended, or did not answer in time.
        """

        def answers() -> bool:
            with contextlib.suppress(httpx.TransportError):
                return httpx.get(f"{self.endpoint}/minio/health/ready", trust_env=False).is_success
            return False

        def check_alive() -> None:
            if process.poll() is not None:
                raise ClusterFailed(f"MinIO has ended:\n{last_lines((self.folder / 'log').read_text())}")

        wait_until("MinIO", answers, timeout=120, alive=check_alive)
