"""Jobs that are ended from outside, that restart, or that never end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kubernetes_backend.failure import ALPINE, TRAINS, Act, Failure, alone, deletes, python, shell, together, worker
from kubernetes_backend.programs import PLAIN
from kubernetes_backend.starts import after
from kubernetes_backend.world import JOB

if TYPE_CHECKING:
    from cluster.kubectl import Kubectl
    from kubernetes_backend.world import World

TRAINING = shell(TRAINS)
RAISES = shell("echo Traceback; exit 1")
FAILS_ONCE = "if [ -e /state/tried ]; then echo epoch 2; sleep 8; exit 0; fi; touch /state/tried; echo epoch 1; exit 1"
LOW = "story-low"
LARGE = "14Gi"
"""More than half of the node's memory: two pods that request it do not fit."""


def _worker_runs(world: World) -> bool:
    return world.runs("worker-0")


def _both_run(world: World) -> bool:
    return world.runs("master-0") and world.runs("worker-0")


def evict(kubectl: Kubectl, namespace: str, pod: str = f"{JOB}-worker-0") -> None:
    """Evict a pod through the Eviction API, as draining its node does.

    training-operator fails the job while such a pod is being deleted. If the operator is busy for as long as that
    takes, it never sees the end and makes another pod; so the pod's program is given half a minute, whatever the
    pod's own grace period. A program that ends at SIGTERM is still gone at once.
    """
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": namespace},
        "deleteOptions": {"gracePeriodSeconds": 30},
    }
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
    kubectl("create", "--raw", path, "--filename", "-", stdin=json.dumps(body))


def _preempt(kubectl: Kubectl, namespace: str) -> None:
    resources = {"requests": {"memory": LARGE}}
    container = {"name": "urgent", "image": ALPINE, "command": ["sleep", "60"], "resources": resources}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    meta = {"name": "urgent", "namespace": namespace}
    kubectl.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})


def _forget_priority(kubectl: Kubectl, _: str) -> None:
    kubectl("delete", "priorityclass", LOW, "--ignore-not-found")


def _suspend(kubectl: Kubectl, namespace: str) -> None:
    change = json.dumps({"spec": {"runPolicy": {"suspend": True}}})
    kubectl("patch", "pytorchjob", JOB, "--namespace", namespace, "--type=merge", "--patch", change)


def _touch(kubectl: Kubectl, namespace: str) -> None:
    kubectl("annotate", "pytorchjob", JOB, "touched=once", "--namespace", namespace)


def _priority(name: str, value: int) -> dict[str, Any]:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}


def _scratch(**fields: Any) -> dict[str, Any]:
    return {
        "pod": {"volumes": [{"name": "state", "emptyDir": fields}]},
        "container": {"volumeMounts": [{"name": "state", "mountPath": "/state"}]},
    }


ENDINGS: dict[str, Failure] = {
    "pod-crash-loop": worker(
        "The worker fails at each of its starts; the operator calls that running.",
        RAISES,
        job={"restart_policy": "OnFailure"},
        limits={"crash_loop_limit": 3},
        until=lambda world: world.restarts() >= 3,
        lasts=4,
    ),
    "pod-recovered": worker(
        "The worker fails once, and its second run ends well.",
        shell(FAILS_ONCE),
        job={"restart_policy": "OnFailure", "master": shell("sleep 10")},
        **_scratch(),
    ),
    "pod-recovered-then-failed": worker(
        "The worker fails once and recovers; then the master raises.",
        shell(FAILS_ONCE.replace("sleep 8; exit 0", "sleep 60")),
        job={
            "restart_policy": "OnFailure",
            "backoff_limit": 2,
            "master": shell("sleep 12; echo Killed by a typo; exit 3"),
        },
        **_scratch(),
    ),
    "pod-exit-code-restarted": worker(
        "The worker is killed by a signal; with ExitCode the operator makes its pod anew, and its second run raises.",
        shell("if [ -e /state/tried ]; then exit 1; fi; touch /state/tried; exit 137"),
        job={"restart_policy": "ExitCode", "volumes": ["data:/state"]},
        before=(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": "data"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
            },
        ),
    ),
    "pod-sidecar": alone(
        "The training has ended well, a sidecar has not.",
        shell("echo epoch 1; sleep 2"),
        pod={"containers": [{"name": "istio-proxy", "image": ALPINE, **TRAINING}]},
        limits={"sidecar_timeout": 20},
        **after(32),
    ),
    "pod-sidecar-failed": alone(
        "A sidecar fails while the training goes on.",
        shell("echo epoch 1; sleep 6"),
        pod={"containers": [{"name": "exporter", "image": ALPINE, **shell("echo no such collector; exit 5")}]},
    ),
    "pod-native-sidecar": alone(
        "The training fails beside a native sidecar, which the kubelet stops.",
        shell("echo epoch 1; sleep 2; exit 3"),
        pod={"initContainers": [{"name": "exporter", "image": ALPINE, "restartPolicy": "Always", **TRAINING}]},
    ),
    "pod-preempted": worker(
        "A pod of higher priority takes the worker's place.",
        TRAINING,
        job={"priority_class_name": LOW},
        container={"resources": {"requests": {"memory": LARGE}}},
        before=(_priority(LOW, -10),),
        acts=(Act(when=_worker_runs, do=_preempt),),
        undo=_forget_priority,
    ),
    "pod-drained": worker(
        "The worker's pod is evicted through the API, as draining a node does.",
        TRAINING,
        acts=(Act(when=_worker_runs, do=evict),),
    ),
    "pod-drained-slowly": worker(
        "The worker's pod is evicted through the API, and its program ignores that: the job fails before it ends.",
        shell('trap "" TERM; echo epoch 1; sleep 3600'),
        acts=(Act(when=_worker_runs, do=evict),),
    ),
    "pod-evicted-own-limit": worker(
        "The worker writes more into its container than it may.",
        shell("sleep 2; dd if=/dev/zero of=/tmp/cache bs=1M count=40; sleep 3600"),
        container={"resources": {"limits": {"ephemeral-storage": "10Mi"}}},
    ),
    "pod-evicted-volume": worker(
        "The worker writes more into a scratch volume than fits.",
        shell("sleep 2; dd if=/dev/zero of=/state/cache bs=1M count=40; sleep 3600"),
        **_scratch(sizeLimit="10Mi"),
    ),
    "pod-deleted": worker(
        "Somebody deletes the worker's pod in mid-training.",
        TRAINING,
        acts=(Act(when=_both_run, do=deletes("pod", f"{JOB}-worker-0")),),
        until=lambda world: world.has_ended or (world.seconds > 25 and _both_run(world)),
        lasts=5,
    ),
    "pod-deleted-gloo": together(
        "Somebody deletes the worker's pod in mid-training, and the master loses its connection.",
        python(PLAIN.replace("step == 20", "step == 10_000")),
        acts=(Act(when=lambda world: _both_run(world) and world.seconds > 12, do=deletes("pod", f"{JOB}-worker-0")),),
    ),
    "pod-deleted-master": worker(
        "Somebody deletes the master's pod in mid-training.",
        TRAINING,
        acts=(Act(when=_both_run, do=deletes("pod", f"{JOB}-master-0")),),
        until=lambda world: world.has_ended or (world.seconds > 25 and _both_run(world)),
        lasts=5,
    ),
    "job-deadline": worker(
        "The job is active longer than it may; the operator sees that only when something changes.",
        TRAINING,
        job={"active_deadline_seconds": 8},
        acts=(Act(when=lambda world: world.seconds > 10, do=_touch),),
    ),
    "job-backoff": worker(
        "The worker's restarts reach the backoff limit; the operator deletes the pods before it says so.",
        RAISES,
        job={"restart_policy": "OnFailure", "backoff_limit": 2},
        limits={"crash_loop_limit": 100},  # on a write conflict, the operator restarts everything (common/job.go)
    ),
    "job-backoff-unseen": worker(
        "The backoff limit was reached while nobody looked.",
        RAISES,
        job={"restart_policy": "OnFailure", "backoff_limit": 1},
        only_the_end=True,
        lasts=6,
    ),
    "job-failed-unseen": worker(
        "The job failed and its pods went while nobody looked.",
        RAISES,
        job={"clean_pod_policy": "All"},
        only_the_end=True,
        lasts=6,
    ),
    "job-deleted": worker(
        "Somebody deletes the job in mid-training.",
        TRAINING,
        acts=(Act(when=_both_run, do=deletes("pytorchjob", JOB)),),
        lasts=5,
    ),
    "job-suspended-in-training": worker(
        "The job is suspended in mid-training, as a queue does that takes its place away.",
        TRAINING,
        acts=(Act(when=_both_run, do=_suspend),),
        **after(20),
    ),
    "job-not-picked-up": worker(
        "No operator takes the job up: it is another manager's.",
        TRAINING,
        run_policy={"managedBy": "kueue.x-k8s.io/multikueue"},
        limits={"queue_timeout": 20},
        **after(25),
    ),
}
