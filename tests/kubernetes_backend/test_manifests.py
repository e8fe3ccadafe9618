"""Tests of users' manifests, as files: a real API server stores all of their fields, including unknown ones."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import upstream
from cluster.images import INIT_IMAGE
from cluster.shell import until
from cluster_world import PATIENCE, config_of
from kubernetes_backend.dry_run import dry_run, lost
from kubernetes_backend.terminal import SMALL
from ptjob_provider.core.kinds import PYTORCHJOB
from ptjob_provider.core.kubernetes.client.http import shared_client
from ptjob_provider.core.manifest import load_manifest
from ptjob_provider.core.spec import TrainingJob
from recorded import DATA, OWNER, without_additions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cluster.boot import Cluster
    from kubernetes_backend.terminal import Terminal

    Arrived = Callable[[Path], tuple[dict[str, Any], dict[str, Any]]]

WRITTEN = ["args-only", "shared-memory", "anchors", "elastic", "every-corner", "exclusive"]


@pytest.fixture
def arrived(cluster: Cluster, namespace: str) -> Arrived:
    """Return a function that returns a file's rendered job, and the same job as the API server would store it."""

    async def submit(file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
        job = TrainingJob.parse(manifest=file, namespace=namespace)
        manifest = PYTORCHJOB.render(job, owner=OWNER, attempt=1).manifest
        async with asyncio.timeout(PATIENCE), shared_client(config_of(cluster.layout.kubeconfig)) as client:
            return manifest, await dry_run(client, manifest)

    return lambda file: asyncio.run(submit(file))


def lost_on_the_way(file: Path, given: dict[str, Any], arrived: Arrived) -> list[str]:
    """Return what the API server did not store: of what we sent, and of what the user wrote."""
    sent, found = arrived(file)
    return [*lost(sent, found), *lost(given, without_additions(found, given))]


def test_the_operators_own_examples_arrive_as_they_are(
    arrived: Arrived,
) -> None:
    """Each of the nine files is accepted, and every field is stored unchanged."""
    upstream.skip_without_go()
    examples = upstream.pytorchjobs()

    assert len(examples) == 9
    assert {file.name: lost_on_the_way(file, given, arrived) for file, given in examples.items()} == {
        file.name: [] for file in examples
    }


@pytest.mark.parametrize("story", WRITTEN)
def test_a_manifest_arrives_as_it_was_written(story: str, arrived: Arrived) -> None:
    """Guides' YAML, anchors, an elastic job, and parts of a pod that this package does not know."""
    file = DATA / f"manifest-{story}.yaml"

    assert lost_on_the_way(file, load_manifest(file), arrived) == []


def test_the_pods_of_a_manifest_keep_together_by_the_label_that_it_gives_them(terminal: Terminal) -> None:
    """Its affinity requires a node with a pod of that `app`: with another value, no pod would get one.

    A Service selects the pods by it, too. The job is listed and deleted as any other.
    """
    kubectl, file = terminal.cluster.kubectl, DATA / "manifest-exclusive.yaml"
    given = load_manifest(file)["metadata"]["labels"]

    submitted = terminal.ptjob("submit", "-f", str(file), "--image", INIT_IMAGE, *SMALL, "sleep 600")

    def running() -> list[dict[str, Any]]:
        pods = kubectl.list("pods", namespace=terminal.namespace)
        return [pod for pod in pods if pod["status"].get("phase") == "Running"]

    assert submitted.exit_code == 0, submitted.output
    until("both pods to run", lambda: len(running()) == 2, timeout=PATIENCE)
    selector = ",".join(f"{key}={value}" for key, value in given.items())
    kinds = ("pytorchjobs,pods", "--namespace", terminal.namespace, "--selector", selector, "-o", "name")
    assert kubectl("get", *kinds).split() == [
        "pytorchjob.kubeflow.org/exclusive",
        "pod/exclusive-master-0",
        "pod/exclusive-worker-0",
    ]
    assert len({pod["spec"]["nodeName"] for pod in running()}) == 1
    assert "exclusive" in terminal.ptjob("list", "-l", f"app={given['app']}").output
    assert terminal.ptjob("delete", "exclusive").exit_code == 0
    until("the pods to be gone", lambda: not terminal.pods(), timeout=PATIENCE)
