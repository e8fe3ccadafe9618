"""Tests of replicas' usage, with a real metrics server."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cluster import metrics_server
from cluster.images import INIT_IMAGE
from cluster.layout import NODE
from cluster.shell import until
from cluster_world import PATIENCE, config_of
from fakes import ListSink
from kubernetes_backend.terminal import person
from ptjob_provider.core.kubernetes import KubernetesBackend
from ptjob_provider.core.run.follow import follow
from ptjob_provider.core.run.submit import Submission
from rbac import optional_rules, rules

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.boot import Cluster
    from kubernetes_backend.terminal import Terminal
    from ptjob_provider.core.run.outcome import JobOutcome

pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


def test_the_usage_of_replicas_is_read_from_a_metrics_server(
    cluster: Cluster, namespace: str, tell: Callable[[str], None]
) -> None:
    """Cores and memory of each replica, now and in the result; null where nothing was measured.

    Later readers of the job see the same values.
    """
    terminal = person(cluster, namespace, [*rules(), *optional_rules()])
    busy = "until [ -e /go ]; do :; done"

    def is_measured() -> bool:
        foundut = json.loads(terminal.ptjob("top", "job", "busy", "-o", "json").stdout)
        return all(use["cpu"] and use["cpu"] > 0.02 and use["memory"] and use["node"] == NODE for use in foundut)

    with metrics_server.serving(cluster, tell):
        terminal.ptjob("submit", "--name", "busy", "--image", INIT_IMAGE, "--workers", "2", "--cpu", "200m", busy)
        until("both to be measured", is_measured, timeout=PATIENCE)
        shown = terminal.ptjob("top", "job", "busy")
        conclusion = asyncio.run(asyncio.wait_for(followed_until_measured(terminal, "busy"), PATIENCE))
        got = json.loads(terminal.ptjob("get", "busy", "-o", "json").stdout)
        found = json.loads(terminal.ptjob("top", "job", "busy", "-o", "json").stdout)

    assert "busy-worker-0" in shown.output
    assert shown.stderr == ""
    assert [row.split()[-1] for row in shown.output.splitlines()[1:]] == ["-", "-"]
    assert conclusion.result is not None
    replicas = conclusion.result["usage"]["replicas"]
    assert set(replicas) == {"busy-master-0", "busy-worker-0"}
    for use in replicas.values():
        assert 0.02 < use["peak_cpu"] < 0.5
        assert use["peak_memory"] > 0
    assert all(use["peak_memory"] >= replicas[use["replica"]]["peak_memory"] for use in found)
    assert got["usage"] == conclusion.result["usage"]


async def followed_until_measured(terminal: Terminal, name: str) -> JobOutcome:
    """Follow a job as its task does, until its usage is known; then let it end."""
    backend = KubernetesBackend(replace(config_of(terminal.kubeconfig), usage_interval=1.0))
    submission = Submission.of(await backend.get("PyTorchJob", terminal.namespace, name))
    following = asyncio.create_task(follow(backend, submission, sink=ListSink()))
    while len(await backend.usage(submission.ref)) < len(submission.ranks):  # noqa: ASYNC110 - the port has no event
        await asyncio.sleep(0.2)
    for replica in submission.ranks:
        let_end = terminal.cluster.kubectl.let_end
        await asyncio.to_thread(let_end, replica, "sh", "-c", ": > /go", namespace=terminal.namespace)
    return await following
