"""Creates thousands of PyTorchJobs that cost the cluster nothing: they are suspended, and the operator ignores them.

They are real objects of the real CRD on a real API server. `managedBy` names another controller, so that the training
operator neither reads nor writes them; the benchmark writes their status through the status subresource.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from ptjob_provider.core.identity import Owner
from ptjob_provider.core.kinds import PYTORCHJOB
from ptjob_provider.core.spec import TrainingJob

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from benchmarks.apiserver import ApiServer
    from ptjob_provider.core.identity import Manifest

OTHER_CONTROLLER = "kueue.x-k8s.io/multikueue"
"""The one value of `managedBy` that training-operator 1.9 ignores."""

CONCURRENCY = 24

Given = TypeVar("Given")
Made = TypeVar("Made")


def suspended_job(namespace: str, number: int) -> Manifest:
    """Return the manifest of a job as `PyTorchJobOperator` submits it, but suspended and without a controller."""
    job = TrainingJob.parse(
        name=f"bench-{number}",
        namespace=namespace,
        image="registry.example/team/training:2026-11",
        command=["torchrun", "train.py", "--epochs", "90", "--data", "/data/imagenet"],
        workers=2,
        gpus=1,
        cpu="4",
        memory="16Gi",
        env={"NCCL_DEBUG": "WARN", "OMP_NUM_THREADS": "4"},
        volumes=["datasets:/data", "runs:/runs"],
        suspend=True,
    )
    ids = {"dag_id": "bench", "task_id": "train", "run_id": "manual__2026", "map_index": str(number)}
    owner = Owner(instance="benchmark", ids=ids, labels={"try_number": "1"})
    manifest = PYTORCHJOB.render(job, owner=owner, attempt=1).manifest
    manifest["spec"]["runPolicy"]["managedBy"] = OTHER_CONTROLLER
    return manifest


async def create(server: ApiServer, namespace: str, manifests: Iterable[Manifest]) -> list[Manifest]:
    """Create jobs with a suspended status; return their current objects, in the given order."""

    async def one(manifest: Manifest) -> Manifest:
        created = await server.request("POST", path(namespace), body=manifest)
        return await server.set_status(created, conditions("Created", "Suspended"))

    return await in_parallel(one, list(manifests))


def conditions(*types: str) -> dict[str, Any]:
    """Return a status with these conditions, all true from now on, in the operator's format."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "conditions": [
            {
                "type": each,
                "status": "True",
                "reason": f"PyTorchJob{each}",
                "message": f"PyTorchJob is {each.lower()}.",
                "lastTransitionTime": now,
                "lastUpdateTime": now,
            }
            for each in types
        ],
        "completionTime": now if {"Succeeded", "Failed"} & set(types) else None,
    }


async def in_parallel(act: Callable[[Given], Awaitable[Made]], given: Sequence[Given]) -> list[Made]:
    """Process many items, a few at a time; return the results in the given order."""
    free = asyncio.Semaphore(CONCURRENCY)

    async def limited(each: Given) -> Made:
        async with free:
            return await act(each)

    return list(await asyncio.gather(*(limited(each) for each in given)))


def path(namespace: str, name: str = "") -> str:
    """Return the path of a job, or of a namespace's jobs."""
    whole = f"/apis/kubeflow.org/v1/namespaces/{namespace}/pytorchjobs"
    return f"{whole}/{name}" if name else whole
