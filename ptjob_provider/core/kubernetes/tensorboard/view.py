"""Show a folder of events on a claim in a TensorBoard at a local address, by a port forward through the API server.

Uses the job's TensorBoard if it is ready, else starts a pod and deletes it afterwards.
"""

from __future__ import annotations

import secrets
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from ptjob_provider.core import kinds
from ptjob_provider.core.diagnosis.last_lines import lines_of
from ptjob_provider.core.errors import PTJobError
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.inspector import check_located
from ptjob_provider.core.kubernetes.client import paths
from ptjob_provider.core.kubernetes.client.port_forward import tunnel
from ptjob_provider.core.kubernetes.helper_pods import existing_claim, running
from ptjob_provider.core.kubernetes.pods import has_ended, is_ready
from ptjob_provider.core.kubernetes.probe import is_held_by_one_node, problem
from ptjob_provider.core.kubernetes.tensorboard import objects
from ptjob_provider.core.tensorboard import TensorBoardPlan

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.inspector import TensorBoardView
    from ptjob_provider.core.kubernetes.client.http import Client

_LINES = 5
"""Number of last lines of an ended pod that an error quotes."""

_IMAGE = "name an image that nodes can pull and whose `python3` has TensorBoard: --image, or [ptjob] tensorboard_image"


@asynccontextmanager
async def shown(client: Client, view: TensorBoardView) -> AsyncIterator[str]:
    """Yield the local address of a TensorBoard that shows the folder; a pod that was started is deleted afterwards.

    Raises:
        InvalidSpec: the claim does not exist, no image with TensorBoard is known, or the local port is taken.
        ClusterError: the pod may not be created or reached, or did not run in time; the text says why.
    """
    pod_name = await _pod_of_job(client, view)
    if pod_name:
        async with _tunnelled(client, view, pod_name) as address:
            yield address
        return
    check_located(view)
    async with _started(client, view) as pod, _tunnelled(client, view, pod) as address:
        yield address


@asynccontextmanager
async def _tunnelled(client: Client, view: TensorBoardView, pod: str) -> AsyncIterator[str]:
    async with tunnel(client, view.namespace, pod, port=objects.PORT, local_port=view.port) as port:
        yield f"http://127.0.0.1:{port}/"


async def _pod_of_job(client: Client, view: TensorBoardView) -> str:
    """Return the name of the ready pod of the job's TensorBoard, which Arena may have created; "" if none is ready."""
    plan = TensorBoardPlan.of(view.job) if view.job is not None else None
    if view.job is None or (plan is not None and not plan.url):
        return ""
    labels = objects.labels_of(view.job["metadata"]["name"])
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    pods = await client.items(paths.pods(view.namespace), labelSelector=selector)
    return next((str(pod["metadata"]["name"]) for pod in pods if is_ready(pod)), "")


@asynccontextmanager
async def _started(client: Client, view: TensorBoardView) -> AsyncIterator[str]:
    """Start a pod that shows the folder, and yield its name once it is ready; delete it afterwards."""
    claim = await existing_claim(client, view.namespace, view.plan.claim)
    await _delete_ended_views(client, view.namespace)
    name = f"ptjob-tensorboard-{secrets.token_hex(4)}"
    held = is_held_by_one_node(claim)
    pod = objects.view_pod(
        view.namespace,
        name,
        view.plan,
        job=view.job,
        user=view.user,
        is_held_by_one_node=held,
        follows=held and await _has_pods(client, view.job),
    )
    async with running(client, pod, is_ready, seconds=view.timeout, obstacle=_obstacle, tell=view.tell):
        yield name


async def _has_pods(client: Client, job: Manifest | None) -> bool:
    """Return whether the job has a pod that has not ended, which may use the claim."""
    if job is None:
        return False
    ref = JobRef.of(job)
    pods = await client.items(paths.pods(ref.namespace), labelSelector=kinds.named(ref.kind).pod_selector(ref.name))
    return not all(map(has_ended, pods))


async def _delete_ended_views(client: Client, namespace: str) -> None:
    """Delete the ended pods of views whose process was killed before it could delete them."""
    with suppress(PTJobError):
        for pod in await client.items(paths.pods(namespace), labelSelector=objects.VIEW_LABEL):
            if has_ended(pod):
                await client.delete(paths.pods(namespace, pod["metadata"]["name"]))


def _obstacle(pod: Manifest, events: Sequence[Manifest]) -> str:
    """Return why the pod does not show the events, what to do next, and the pod's last lines."""
    why = problem(pod, events) or "does not listen yet"
    requests = "{cpu} CPU and {memory}".format_map(objects.RESOURCES["requests"])
    advice = f"{_IMAGE}; and see that a node that can mount the claim has {requests} left"
    states = [each.get("state") or {} for each in (pod.get("status") or {}).get("containerStatuses") or ()]
    message = "".join((state.get("terminated") or {}).get("message") or "" for state in states)
    return "\n".join([f"that was to show the events {why}; {advice}", *lines_of(message)[-_LINES:]])
