"""A back-end for jobs that bring their code: with Secrets, and with servers that its pods reach."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.tenants import service_account
from cluster_world import PATIENCE, RESTRICTED, config_of
from code_servers import PASSWORD, Net
from fakes import ListSink, MemoryStore
from local_world import environment
from ptjob_provider.core.code.folder import with_packed_folder
from ptjob_provider.core.kubernetes import KubernetesBackend
from ptjob_provider.core.local.backend import LocalBackend
from ptjob_provider.core.local.config import LocalConfig
from ptjob_provider.core.run.follow import follow
from ptjob_provider.core.run.submit import ensure_submitted
from ptjob_provider.core.spec import Installation, TrainingJob
from rbac import rules_of
from recorded import OWNER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest

    from cluster.boot import Cluster
    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.run.outcome import JobOutcome


@dataclass
class Place:
    """A back-end, and what jobs need there.

    Attributes:
        backend: runs the jobs.
        net: the addresses on which servers have to listen.
        fields: settings that jobs need there.
        secret: creates a Secret.
        job_secrets: returns the Secrets that jobs own.
        sync_image: the installation's image that fetches code.
    """

    backend: Backend
    net: Net
    namespace: str
    fields: dict[str, Any]
    secret: Callable[[str, dict[str, str]], None]
    job_secrets: Callable[[], list[Manifest]]
    sync_image: str = ""

    async def run(self, **fields: Any) -> tuple[JobOutcome, ListSink, Manifest]:
        """Submit a job, follow it to its end, and return its outcome, its log and its object."""
        values = {"memory": "256Mi", "cpu": "0.5", **self.fields, **fields}
        job = with_packed_folder(TrainingJob.parse(name="code", namespace=self.namespace, **values), beside=Path())
        installation = Installation(sync_image=self.sync_image)
        sink, store = ListSink(), MemoryStore()
        async with asyncio.timeout(PATIENCE):
            submission = await ensure_submitted(self.backend, job, owner=OWNER, store=store, installation=installation)
            conclusion = await follow(self.backend, submission, sink=sink)
            found = await self.backend.get(submission.ref.kind, self.namespace, submission.ref.name)
        return conclusion, sink, found


def on_this_machine(folder: Path) -> Place:
    secrets: dict[str, dict[str, str]] = {}
    config = LocalConfig(root=folder / "root", environment=environment(), secrets=secrets)

    def left() -> list[Manifest]:
        assert not any(PASSWORD.encode() in text for text in contents(folder / "root"))  # nor in any file of the job
        return []

    return Place(LocalBackend(config), Net(), "default", {"image": "example.org/train:1"}, secrets.__setitem__, left)


def contents(folder: Path) -> Iterator[bytes]:
    """Yield the content of each file that is no link; folders of a job that has ended may be removed meanwhile."""
    for parent, _, names in os.walk(folder):
        for file in (Path(parent, name) for name in names):
            with contextlib.suppress(FileNotFoundError):
                if file.is_file() and not file.is_symlink():
                    yield file.read_bytes()


def on_cluster(request: pytest.FixtureRequest, *components: str) -> Place:
    """Return a namespace of restricted pods, and an account with the rights of these components of deploy/."""
    cluster: Cluster = request.getfixturevalue("cluster")
    namespace: str = request.getfixturevalue("hardened_namespace")
    hardened = {"image": request.getfixturevalue("digits_image"), **RESTRICTED}

    def secret(name: str, values: dict[str, str]) -> None:
        meta = {"name": name, "namespace": namespace}
        cluster.kubectl.apply({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": values})

    def left() -> list[Manifest]:
        items: list[Manifest] = json.loads(cluster.kubectl("get", "secrets", "-o", "json", "-n", namespace))["items"]
        return [each for each in items if each["metadata"].get("ownerReferences")]

    backend = KubernetesBackend(config_of(service_account(cluster, namespace, rules_of(*components))))
    return Place(backend, Net.of(cluster), namespace, hardened, secret, left)
