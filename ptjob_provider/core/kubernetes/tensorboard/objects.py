"""Render the objects that run TensorBoard: Deployment and Service of a job, and the pod of a one-off view. Pure.

The pod mounts the whole claim read-only. It inherits rank 0's user and, if the claim requires it, rank 0's node. It has
requests and limits, and no service account token, device or Istio sidecar. With a non-root user it passes the
PodSecurity level `restricted`.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any

from ptjob_provider.core import kinds
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.identity import PREFIX, label_value
from ptjob_provider.core.kinds import pod_template
from ptjob_provider.core.kinds.pod_template import NO_ISTIO
from ptjob_provider.core.kubernetes.pods import HELPER, inherited, metadata, placement, platform, python_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.tensorboard import TensorBoardPlan

PORT = 6006
"""Port on which TensorBoard listens in the pod."""

CONTAINER = "tensorboard"
VIEW_LABEL = f"{PREFIX}/tensorboard-of"
"""Label on the pod of a one-off view; its value is the name of the claim."""

LIFE = 8 * 3600
"""Seconds after which the pod of a one-off view ends, if its creator could not delete it."""

RESOURCES = {"requests": {"cpu": "50m", "memory": "256Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
"""TensorBoard takes about 150 MiB, and keeps the data that it shows in memory."""

_EVICTABLE = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
"""Annotation that allows eviction, so that the pod does not keep a node from being scaled down."""

_ROOT = "/claim"


def name_of(job_name: str) -> str:
    """Return the name of the Deployment and the Service of a job's TensorBoard: the name that Arena uses."""
    return f"{job_name}-tensorboard"


def labels_of(job_name: str) -> dict[str, str]:
    """Return the labels by which Arena finds a job's TensorBoard."""
    return {"role": "tensorboard", "release": label_value(job_name)}


def deployment(job: Manifest, plan: TensorBoardPlan, *, is_held_by_one_node: bool) -> Manifest:
    """Return the Deployment of a job's TensorBoard.

    Args:
        job: the job's object, which owns the Deployment.
        plan: the requested TensorBoard.
        is_held_by_one_node: only one node at a time can mount the claim. The pod then requires a node with a pod of the
            job, so that TensorBoard is never the first to mount the claim.

    Raises:
        InvalidSpec: no image is configured, and the job's manifest has none.
    """
    name, labels = name_of(job["metadata"]["name"]), labels_of(job["metadata"]["name"])
    template = {
        "metadata": {"labels": {**labels, **NO_ISTIO}, "annotations": {**NO_ISTIO, **_EVICTABLE}},
        "spec": _pod_for_job(job, plan, is_held_by_one_node=is_held_by_one_node, follows=is_held_by_one_node),
    }
    spec = {
        "replicas": 1,
        "revisionHistoryLimit": 0,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": labels},
        "template": template,
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata(job, name, labels), "spec": spec}


def service(job: Manifest, plan: TensorBoardPlan) -> Manifest:
    """Return the Service of a job's TensorBoard, which the job owns."""
    labels = labels_of(job["metadata"]["name"])
    port = {"name": "tensorboard", "port": PORT, "targetPort": PORT}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(job, name_of(job["metadata"]["name"]), labels),
        "spec": {"type": plan.service_type, "selector": labels, "ports": [port]},
    }


def url(manifest: Mapping[str, Any], node: str) -> str:
    """Return the address of a Service: its node port if it has one and a node is known, else its DNS name.

    Args:
        manifest: the Service as the server has it.
        node: address of a node; "" if unknown.
    """
    meta, port = manifest["metadata"], manifest["spec"]["ports"][0]
    if node and port.get("nodePort"):
        host = f"[{node}]" if ":" in node else node
        return f"http://{host}:{port['nodePort']}/"
    return f"http://{meta['name']}.{meta['namespace']}.svc:{port['port']}/"


def view_pod(
    namespace: str,
    name: str,
    plan: TensorBoardPlan,
    *,
    job: Manifest | None,
    user: int | None,
    is_held_by_one_node: bool,
    follows: bool,
) -> Manifest:
    """Return the pod of a one-off view of a folder; the pod ends by itself after some hours.

    Args:
        namespace: namespace of the claim.
        name: name of the pod.
        plan: the folder, and the image, whose `python3` has TensorBoard.
        job: the job that has written the folder; None if unknown.
        user: user id of the pod; None: the job's, else the image's.
        is_held_by_one_node: only one node at a time can mount the claim. The pod then uses rank 0's node selection,
            because nodes outside it may not reach the volume.
        follows: the job's pods may use the claim now; the pod then requires a node with one of them.
    """
    if job is None:
        pod = _pod(plan, plan.image, "python3", *inherited({"spec": {}}, {}))
    else:
        pod = _pod_for_job(job, plan, is_held_by_one_node=is_held_by_one_node, follows=follows)
    if user is not None:
        for_pod, for_container = inherited({"spec": {"securityContext": {"runAsUser": user, "runAsGroup": user}}}, {})
        pod |= for_pod
        pod["containers"] = [pod["containers"][0] | for_container]
    spec = {**pod, "restartPolicy": "Never", "activeDeadlineSeconds": LIFE}
    labels = {VIEW_LABEL: label_value(plan.claim), **NO_ISTIO}
    meta = {"name": name, "namespace": namespace, "labels": labels, "annotations": NO_ISTIO}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def _pod_for_job(job: Manifest, plan: TensorBoardPlan, *, is_held_by_one_node: bool, follows: bool) -> Manifest:
    kind = kinds.kind_of(job)
    rank0 = kind.rank0_template(job)
    trainer = pod_template.find_container(rank0, kind.CONTAINER)
    image = plan.image or trainer.get("image")
    if not image:
        raise InvalidSpec.of(
            "tensorboard.image", None, "give an image with TensorBoard: the job's own is in its runtime"
        )
    python = "python3" if plan.image else python_of(trainer)
    place = placement(rank0, trainer, on_its_node=False) if is_held_by_one_node else platform(rank0)
    if follows:
        pods_of_job = {"labelSelector": {"matchLabels": {"pytorch_job_name": job["metadata"]["name"]}}}
        rule = {**pods_of_job, "topologyKey": "kubernetes.io/hostname"}
        affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}
        place["affinity"] = {**(place.get("affinity") or {}), **affinity}
    return {**_pod(plan, str(image), python, *inherited(rank0, trainer)), **place}


def _pod(plan: TensorBoardPlan, image: str, python: str, for_pod: Manifest, for_container: Manifest) -> Manifest:
    folder = posixpath.join(_ROOT, plan.path)
    container = {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": [python, "-m", "tensorboard.main", "--logdir", folder, "--bind_all", "--port", str(PORT)],
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}],
        "ports": [{"containerPort": PORT}],
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 2},
        "resources": RESOURCES,
        **for_container,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "claim", "mountPath": _ROOT, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - of its own pod
        ],
        "workingDir": "/tmp",  # noqa: S108 - as above
    }
    return {
        **HELPER,
        **for_pod,
        "containers": [container],
        "volumes": [
            {"name": "claim", "persistentVolumeClaim": {"claimName": plan.claim, "readOnly": True}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }
