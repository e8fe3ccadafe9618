"""Render the objects that show a folder of events: a job's TensorBoard, and a pod for one-off views of a claim.

Pure. The pod mounts the claim whole and read-only, inherits rank 0's user and, if the claim requires it, its node, and
has requests and limits, no service account token, no device and no Istio; for a non-root user it passes PodSecurity
`restricted`.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any

from ptjob_provider.core import kinds
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.identity import PREFIX, label_value
from ptjob_provider.core.kinds import pod_template
from ptjob_provider.core.kinds.pod_template import NO_ISTIO
from ptjob_provider.core.kubernetes.pods import HELPER, metadata, picked, placement, platform, python_of, security

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.tensorboard import TensorBoardPlan

PORT = 6006
"""Port of TensorBoard inside the pod."""

CONTAINER = "tensorboard"
VIEW_LABEL = f"{PREFIX}/tensorboard-of"
"""Label on a one-off pod: the claim that it shows."""

LIFE = 8 * 3600
"""Seconds after which such a pod ends, if its creator could not delete it."""

RESOURCES = {"requests": {"cpu": "50m", "memory": "256Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
"""TensorBoard keeps its data in memory; it alone takes about 150 MiB."""

_EVICTABLE = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
"""Allows eviction: it is recreated elsewhere, and does not block scaling down a node."""

_ROOT = "/claim"


def name_of(job_name: str) -> str:
    """Return the name of the Deployment and the Service of a job's TensorBoard, which is Arena's."""
    return f"{job_name}-tensorboard"


def labels_of(job_name: str) -> dict[str, str]:
    """Return the labels by which Arena finds a job's TensorBoard."""
    return {"role": "tensorboard", "release": label_value(job_name)}


def deployment(job: Manifest, plan: TensorBoardPlan, *, is_held_by_one_node: bool) -> Manifest:
    """Return the Deployment of a job's TensorBoard, which the job owns.

    Args:
        job: the job's object.
        plan: the requested TensorBoard.
        is_held_by_one_node: only one node at a time can mount the claim: the pod waits for one of the job's and follows
            it, so that it is never the first to have the claim.

    Raises:
        InvalidSpec: no image with TensorBoard is configured.
    """
    name, labels = name_of(job["metadata"]["name"]), labels_of(job["metadata"]["name"])
    template = {
        "metadata": {"labels": {**labels, **NO_ISTIO}, "annotations": {**NO_ISTIO, **_EVICTABLE}},
        "spec": _pod_beside(job, plan, is_held_by_one_node=is_held_by_one_node, follows=is_held_by_one_node),
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
    """Return the Service of a job's TensorBoard."""
    labels = labels_of(job["metadata"]["name"])
    port = {"name": "tensorboard", "port": PORT, "targetPort": PORT}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(job, name_of(job["metadata"]["name"]), labels),
        "spec": {"type": plan.service_type, "selector": labels, "ports": [port]},
    }


def url(made: Mapping[str, Any], node: str) -> str:
    """Return the address of a Service.

    Args:
        made: the Service as the server has it.
        node: the address of a node; "" if unknown.
    """
    meta, port = made["metadata"], made["spec"]["ports"][0]
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
    """Return a pod that shows a folder of a claim once, and ends by itself.

    Args:
        namespace: of the claim.
        name: of the pod.
        plan: the folder, and the image, which has `python3` with TensorBoard.
        job: the job that has written it; None if unknown.
        user: its user id; None: the job's, else the image's.
        is_held_by_one_node: only one node at a time can mount the claim: its volume may be where the job could run.
        follows: the job's pods have it now, and it is scheduled to their node.
    """
    if job is None:
        pod = _pod(plan, plan.image, "python3", security({}, {}))
    else:
        pod = _pod_beside(job, plan, is_held_by_one_node=is_held_by_one_node, follows=follows)
    if user is not None:
        for_pod, for_container = security({"runAsUser": user, "runAsGroup": user}, {})
        pod |= {"securityContext": for_pod}
        pod["containers"] = [{**pod["containers"][0], "securityContext": for_container}]
    spec = {**pod, "restartPolicy": "Never", "activeDeadlineSeconds": LIFE}
    labels = {VIEW_LABEL: label_value(plan.claim), **NO_ISTIO}
    meta = {"name": name, "namespace": namespace, "labels": labels, "annotations": NO_ISTIO}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def _pod_beside(job: Manifest, plan: TensorBoardPlan, *, is_held_by_one_node: bool, follows: bool) -> Manifest:
    kind = kinds.kind_of(job)
    rank0 = kind.rank0_template(job)
    trainer, spec = pod_template.find_container(rank0, kind.CONTAINER), rank0["spec"]
    image = plan.image or trainer.get("image")
    if not image:
        raise InvalidSpec.of(
            "tensorboard.image", None, "give an image with TensorBoard: the job's own is in its runtime"
        )
    python = "python3" if plan.image else python_of(trainer)
    contexts = security(spec.get("securityContext") or {}, trainer.get("securityContext") or {})
    place = placement(rank0, trainer, on_its_node=False) if is_held_by_one_node else platform(rank0)
    if follows:
        beside = {"labelSelector": {"matchLabels": {"pytorch_job_name": job["metadata"]["name"]}}}
        rule = {**beside, "topologyKey": "kubernetes.io/hostname"}
        affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}
        place["affinity"] = {**(place.get("affinity") or {}), **affinity}
    taken = picked(spec, ("imagePullSecrets", "serviceAccountName"))
    return {**_pod(plan, str(image), python, contexts), **taken, **place}


def _pod(plan: TensorBoardPlan, image: str, python: str, contexts: tuple[Manifest, Manifest]) -> Manifest:
    for_pod, for_container = contexts
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
        "securityContext": for_container,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "claim", "mountPath": _ROOT, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - of its own pod
        ],
        "workingDir": "/tmp",  # noqa: S108 - as above
    }
    return {
        **HELPER,
        "securityContext": for_pod,
        "containers": [container],
        "volumes": [
            {"name": "claim", "persistentVolumeClaim": {"claimName": plan.claim, "readOnly": True}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }
