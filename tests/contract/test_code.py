"""Tests of code fetched from real servers before the training, on each back-end: by password, key and rsync."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import code_servers
from cluster.sync_image import SYNC
from cluster.tenants import service_account
from cluster_world import PATIENCE, RESTRICTED, config_of
from code_servers import PASSWORD, USER, Net
from fakes import ListSink, MemoryStore
from local_world import environment
from ptjob_provider.core.kubernetes import KubernetesBackend
from ptjob_provider.core.local.backend import LocalBackend
from ptjob_provider.core.local.config import LocalConfig
from ptjob_provider.core.run.follow import follow
from ptjob_provider.core.run.outcome import Outcome
from ptjob_provider.core.run.submit import ensure_submitted
from ptjob_provider.core.spec import Installation, TrainingJob
from rbac import rules_of
from recorded import OWNER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cluster.boot import Cluster
    from code_servers import Repository
    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.run.outcome import JobOutcome

PROGRAM = """
import os, pathlib, sys
sys.path.insert(0, "code/mnist/part")
import part
print("trained", part.PART, sorted(name for name in os.environ if name.startswith(("GIT_SYNC_", "GITSYNC_"))))
"""
TRAIN = ["python3", "code/mnist/train.py"]
WORK = {"working_dir": "/work", "command": TRAIN, "memory": "256Mi", "cpu": "0.5"}


@dataclass
class Place:
    """A back-end whose pods reach the servers.

    Attributes:
        backend: runs the jobs.
        net: the addresses on which servers have to listen.
        fields: settings that jobs need there.
        secret: creates a Secret.
        job_secrets: returns the Secrets that jobs own.
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
        job = TrainingJob.parse(name="code", namespace=self.namespace, **{**WORK, **self.fields, **fields})
        installation = Installation(sync_image=self.sync_image)
        sink, store = ListSink(), MemoryStore()
        async with asyncio.timeout(PATIENCE):
            submission = await ensure_submitted(self.backend, job, owner=OWNER, store=store, installation=installation)
            conclusion = await follow(self.backend, submission, sink=sink)
            found = await self.backend.get(submission.ref.kind, self.namespace, submission.ref.name)
        return conclusion, sink, found


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    code_servers.ensure_programs()
    return code_servers.repository(tmp_path_factory.mktemp("code"), PROGRAM)


@pytest.fixture(params=["local", pytest.param("kubernetes", marks=pytest.mark.cluster)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Return each back-end in turn."""
    return _on_cluster(request) if request.param == "kubernetes" else _on_this_machine(tmp_path)


def _on_this_machine(folder: Path) -> Place:
    secrets: dict[str, dict[str, str]] = {}
    config = LocalConfig(root=folder / "root", environment=environment(), secrets=secrets)

    def left() -> list[Manifest]:
        assert not any(PASSWORD.encode() in text for text in _contents(folder / "root"))  # nor in any file of the job
        return []

    return Place(LocalBackend(config), Net(), "default", {"image": "example.org/train:1"}, secrets.__setitem__, left)


def _contents(folder: Path) -> Iterator[bytes]:
    """Yield the content of each file; the job has ended, and its own folders are being removed meanwhile."""
    for parent, _, names in os.walk(folder):
        for file in (Path(parent, name) for name in names):
            with contextlib.suppress(FileNotFoundError):
                if file.is_file():
                    yield file.read_bytes()


def _on_cluster(request: pytest.FixtureRequest) -> Place:
    """Return a namespace of restricted pods, and an account with the documented rights."""
    cluster: Cluster = request.getfixturevalue("cluster")
    namespace: str = request.getfixturevalue("hardened_namespace")
    tell = request.getfixturevalue("tell")
    hardened = {"image": request.getfixturevalue("digits_image"), **RESTRICTED}

    def secret(name: str, values: dict[str, str]) -> None:
        meta = {"name": name, "namespace": namespace}
        cluster.kubectl.apply({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": values})

    def left() -> list[Manifest]:
        items: list[Manifest] = json.loads(cluster.kubectl("get", "secrets", "-o", "json", "-n", namespace))["items"]
        return [each for each in items if each["metadata"].get("ownerReferences")]

    backend = KubernetesBackend(config_of(service_account(cluster, namespace, rules_of("code"))))
    return Place(backend, Net.of(cluster), namespace, hardened, secret, left, SYNC.ensure(cluster, tell))


@pytest.fixture
def private_url(repository: Repository, place: Place) -> Iterator[str]:
    with code_servers.http(repository.path.parent, place.net, private=True) as address:
        yield f"{address}/mnist.git"


async def test_the_code_of_a_branch_is_trained_and_its_revision_reported(place: Place, repository: Repository) -> None:
    """It is in `code/<repository>` of the working directory; the result names the commit."""
    with code_servers.http(repository.path.parent, place.net) as address:
        conclusion, sink, _ = await place.run(code=f"{address}/mnist.git")
        other, _, _ = await place.run(code={"git": f"{address}/mnist.git", "branch": "other"})

    assert conclusion.outcome is Outcome.SUCCEEDED, conclusion
    assert sink.lines == ["trained 1 []"]
    assert (conclusion.result or {})["git_revision"] == repository.revisions["main"]
    assert (other.result or {})["git_revision"] == repository.revisions["other"]


async def test_credentials_among_the_variables_are_hidden(
    place: Place, private_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """They are only in a Secret that the job owns; one message says so, without them."""
    env = {"GIT_SYNC_USERNAME": USER, "GIT_SYNC_PASSWORD": PASSWORD}

    conclusion, sink, job = await place.run(code=private_url, env=env)

    assert conclusion.outcome is Outcome.SUCCEEDED, conclusion
    assert sink.lines == ["trained 1 []"]  # the training has none of the variables
    assert PASSWORD not in json.dumps([job, conclusion.to_dict(), sink.notices]) + caplog.text
    assert caplog.text.count("the values of GIT_SYNC_PASSWORD, GIT_SYNC_USERNAME are in the Secret") == 1
    for secret in place.job_secrets():
        assert secret["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]


async def test_a_secret_that_is_named_opens_the_repository(place: Place, private_url: str) -> None:
    """Nothing is moved, and no further right is needed."""
    place.secret("hub", {"username": USER, "password": PASSWORD})

    conclusion, sink, _ = await place.run(code={"git": private_url, "secret": "hub"})

    assert conclusion.outcome is Outcome.SUCCEEDED, conclusion
    assert sink.lines == ["trained 1 []"]
    assert place.job_secrets() == []


async def test_a_key_opens_the_repository(place: Place, repository: Repository, tmp_path: Path) -> None:
    """This includes users that the image does not define."""
    with code_servers.ssh(tmp_path / "server", place.net) as server:
        place.secret("deploy", {"ssh-privatekey": server.key, "known_hosts": server.known_hosts})
        conclusion, sink, _ = await place.run(code={"git": server.url(repository.path), "secret": "deploy"})

    assert conclusion.outcome is Outcome.SUCCEEDED, conclusion
    assert sink.lines == ["trained 1 []"]


async def test_a_folder_is_fetched_by_rsync(place: Place, tmp_path: Path) -> None:
    """Arena's other way, with a password and a custom image; the local back-end uses the machine's programs."""
    own = {"image": place.sync_image or "team/sync:1"}
    elsewhere = replace(place, sync_image="not.there/sync:1")
    (tmp_path / "served" / "mnist").mkdir(parents=True)
    (tmp_path / "served" / "mnist" / "train.py").write_text("print('by rsync')\n")
    with code_servers.rsync(tmp_path / "served", place.net, private=True) as address:
        code = {"rsync": f"{address}/mnist", **own}
        conclusion, sink, _ = await elsewhere.run(code=code, env={"RSYNC_PASSWORD": PASSWORD})

    assert conclusion.outcome is Outcome.SUCCEEDED, conclusion
    assert sink.lines == ["by rsync"]
    assert (conclusion.result or {})["git_revision"] is None
