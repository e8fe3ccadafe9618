"""A real S3 server for tests: versitygw on a temporary directory, built from its Go module."""

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
from cluster.binaries import S3_SERVER, Binaries
from cluster.layout import Layout
from cluster.shell import ClusterFailed, bare_environment, last_lines, wait_until
from demo.processes import end_processes, session_processes
from demo.stack import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OWNER = "watcher"
HEALTH = "/health"


def built() -> Path | None:
    """Return the path of the program, or None if it has not been built yet."""
    program = Binaries(Layout.of(os.environ).binaries).folder(S3_SERVER) / "versitygw"
    return program if program.exists() else None


def unmet() -> str:
    """Return one line that says why this machine cannot run the server, or ""."""
    return "" if built() else binaries.go_unmet()


@contextlib.contextmanager
def running(tell: Callable[[str], None] = lambda _: None) -> Iterator[S3Server]:
    """Run an empty server, which is deleted with its data at the end of the context.

    Raises:
        ClusterFailed: The server could not be built or did not start; with the end of its output.
    """
    layout = Layout.of(os.environ)
    if built() is None:
        Binaries(layout.binaries).build(tell, [S3_SERVER])
    program = built()
    if program is None:
        raise ClusterFailed(f"the build of {S3_SERVER.name} brought no program")
    with tempfile.TemporaryDirectory(prefix="ptjob-s3-") as folder:
        server = S3Server(Path(folder))
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
class S3Server:
    """A server with one user, who has all permissions; other users have none.

    Buckets are directories and keys are file paths: `a` and `a/b` cannot both be objects.
    """

    folder: Path
    port: int = field(default_factory=free_port)
    password: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)

    @property
    def endpoint(self) -> str:
        """The URL of the server."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def files(self) -> Any:
        """A file system that writes to the server: fsspec's, which is not the one under test."""
        return fsspec.filesystem(
            "s3", key=OWNER, secret=self.password, endpoint_url=self.endpoint, use_listings_cache=False
        )

    def connection(self, endpoint: str = "") -> str:
        """Return an Airflow connection to the server (JSON, as in AIRFLOW_CONN_…), through another URL if given."""
        extra = {"endpoint_url": endpoint or self.endpoint, "region_name": "us-east-1"}
        return json.dumps({"conn_type": "aws", "login": OWNER, "password": self.password, "extra": extra})

    def start(self, program: Path) -> subprocess.Popen[bytes]:
        """Start the server.

        `--disableotmp`: an overwritten object is renamed into place. Otherwise versitygw first links the new file
        beside it, and a listing may show that name.
        """
        data = self.folder / "data"
        data.mkdir()
        argv = [program, "--quiet", "--port", f"127.0.0.1:{self.port}", "--health", HEALTH]
        argv += ["posix", "--disableotmp", data]
        keys = {"ROOT_ACCESS_KEY_ID": OWNER, "ROOT_SECRET_ACCESS_KEY": self.password}
        env = bare_environment(self.folder, **keys)
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                argv, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def wait(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until the server answers.

        Raises:
            ClusterFailed: The server ended or did not answer in time.
        """

        def answers() -> bool:
            with contextlib.suppress(httpx.TransportError):
                return httpx.get(f"{self.endpoint}{HEALTH}", trust_env=False).is_success
            return False

        def check_alive() -> None:
            if process.poll() is not None:
                raise ClusterFailed(f"the S3 server has ended:\n{last_lines((self.folder / 'log').read_text())}")

        wait_until("the S3 server", answers, timeout=120, alive=check_alive)
