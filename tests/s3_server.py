"""A real S3 server for tests: versitygw on a temporary directory, built from its Go module."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import httpx

from cluster import binaries
from cluster.binaries import S3_SERVER, Binaries
from cluster.layout import Layout
from cluster.shell import bare_environment
from demo.stack import free_port
from serving import serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OWNER = "watcher"
HEALTH = "/health"


def _programs() -> Binaries:
    return Binaries(Layout.of(os.environ).binaries)


def unmet() -> str:
    """Return one line that says why this machine cannot run the server, or ""."""
    return binaries.go_unmet() if _programs().missing([S3_SERVER]) else ""


@contextlib.contextmanager
def running(tell: Callable[[str], None] = lambda _: None) -> Iterator[S3Server]:
    """Run an empty server, which is deleted with its data at the end of the context.

    `--disableotmp`: an overwritten object is renamed into place. Otherwise versitygw first links the new file beside
    it, and a listing may show that name.

    Raises:
        ClusterFailed: The server could not be built or did not start; with the end of its output.
    """
    _programs().build(tell, [S3_SERVER])
    with tempfile.TemporaryDirectory(prefix="ptjob-s3-") as folder:
        server, home = S3Server(), Path(folder)
        (home / "data").mkdir()
        program = str(_programs().folder(S3_SERVER) / "versitygw")
        argv = [program, "--quiet", "--port", f"127.0.0.1:{server.port}", "--health", HEALTH]
        argv += ["posix", "--disableotmp", str(home / "data")]
        env = bare_environment(home, ROOT_ACCESS_KEY_ID=OWNER, ROOT_SECRET_ACCESS_KEY=server.password)
        with serving("the S3 server", argv, env=env, log=home / "log", answers=server.answers):
            yield server


@dataclass(frozen=True)
class S3Server:
    """A server with one user, who has all permissions; other users have none.

    Buckets are directories and keys are file paths: `a` and `a/b` cannot both be objects.
    """

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

    def answers(self) -> bool:
        """Return whether the server answers."""
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{self.endpoint}{HEALTH}", trust_env=False).is_success
        return False
