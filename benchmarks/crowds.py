"""Creates many jobs or pods in a namespace, and users whose requests are counted separately."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from benchmarks import many_jobs, many_pods, requests_made
from benchmarks.waiting import Crowd, User
from cluster.tenants import service_account

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from benchmarks.apiserver import ApiServer
    from cluster.boot import Cluster

RULES = (
    {
        "apiGroups": ["kubeflow.org"],
        "resources": ["pytorchjobs"],
        "verbs": ["get", "list", "watch", "patch", "delete"],
    },
    {"apiGroups": [""], "resources": ["pods", "pods/log", "events"], "verbs": ["get", "list", "watch"]},
)
"""Permissions of a triggerer for our jobs and for pods of KubernetesPodOperator."""


async def jobs(server: ApiServer, namespace: str, count: int) -> Crowd:
    """Create that many suspended jobs."""
    created = await many_jobs.create(
        server, namespace, (many_jobs.suspended_job(namespace, number) for number in range(count))
    )
    return Crowd(
        server=server,
        namespace=namespace,
        resource="pytorchjobs",
        path=many_jobs.path(namespace),
        objects=created,
        touch=server.touch,
        finish=lambda job: server.set_status(job, many_jobs.conditions("Created", "Succeeded")),
        revive=lambda job: server.set_status(job, many_jobs.conditions("Created", "Suspended")),
    )


async def pods(server: ApiServer, namespace: str, count: int) -> Crowd:
    """Create that many pods that appear to run."""
    created = await many_pods.create(server, namespace, count)
    return Crowd(
        server=server,
        namespace=namespace,
        resource="pods",
        path=many_pods.path(namespace),
        objects=created,
        touch=server.touch,
        finish=lambda pod: server.set_status(pod, many_pods.succeeded()),
        revive=lambda pod: server.set_status(pod, many_pods.running()),
    )


@asynccontextmanager
async def user_of(cluster: Cluster, server: ApiServer, namespace: str, account: str) -> AsyncIterator[User]:
    """Create a service account, and count its requests inside the block."""
    kubeconfig = service_account(cluster, namespace, RULES, name=account)
    async with requests_made.counted(server, namespace, account) as name:
        yield User(kubeconfig=kubeconfig, counted_as=name)
