"""Creates thousands of pods without nodes: real objects whose status the benchmark writes, as a kubelet would.

No scheduler assigns them to a node, so no kubelet overwrites the status.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from benchmarks.many_jobs import in_parallel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.apiserver import ApiServer
    from ptjob_provider.core.identity import Manifest

CONTAINER = "base"


async def create(server: ApiServer, namespace: str, count: int) -> list[Manifest]:
    """Create pods with a running status; return their current objects."""

    async def one(number: int) -> Manifest:
        created = await server.request("POST", path(namespace), body=_pod(namespace, f"bench-pod-{number}"))
        return await server.set_status(created, running())

    return await in_parallel(one, list(range(count)))


def running() -> dict[str, Any]:
    """Return the status of a pod whose container runs."""
    return _status("Running", {"running": {"startedAt": _now()}})


def succeeded() -> dict[str, Any]:
    """Return the status of a pod whose container has succeeded."""
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": _now(), "finishedAt": _now()}
    return _status("Succeeded", {"running": None, "terminated": ended})


def path(namespace: str, name: str = "") -> str:
    """Return the path of a pod, or of a namespace's pods."""
    whole = f"/api/v1/namespaces/{namespace}/pods"
    return f"{whole}/{name}" if name else whole


def _status(phase: str, state: Mapping[str, Any]) -> dict[str, Any]:
    container = {
        "name": CONTAINER,
        "image": "registry.example/team/training:2026-11",
        "imageID": "",
        "ready": phase == "Running",
        "restartCount": 0,
        "state": state,
    }
    return {"phase": phase, "containerStatuses": [container]}


def _pod(namespace: str, name: str) -> Manifest:
    labels = {"dag_id": "bench", "task_id": "train", "run_id": "manual__2026", "kubernetes_pod_operator": "True"}
    container = {
        "name": CONTAINER,
        "image": "registry.example/team/training:2026-11",
        "command": ["torchrun", "train.py", "--epochs", "90", "--data", "/data/imagenet"],
        "resources": {"requests": {"cpu": "4", "memory": "16Gi"}},
    }
    # With another restart policy, the API server would refuse a running status after the end, for the next contender.
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"schedulerName": "benchmark", "restartPolicy": "Always", "containers": [container]},
    }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
