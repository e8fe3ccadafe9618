"""Jobs that do not start, or only in part: images, programs, secrets, volumes, init containers, capacity, rights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cluster.shell import ClusterFailed, wait_until
from kubernetes_backend.failure import DIGITS, TRAINS, alone, shell, worker

if TYPE_CHECKING:
    from cluster.kubectl import Kubectl
    from kubernetes_backend.failure import Failure
    from kubernetes_backend.world import World

REGISTRY_PORT = 5000
REGISTRY = """\
import http.server, time

class Registry(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if "/slow/" in self.path:
            time.sleep(3600)
        self.send_response(401 if "/private/" in self.path else 404)
        self.end_headers()

    do_HEAD = do_GET

http.server.ThreadingHTTPServer(("127.0.0.1", 5000), Registry).serve_forever()
"""
STANDS_STILL = {"start_timeout": 20}
TRAINING = shell(TRAINS)
HARDENED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""A container with this may run where PodSecurity is `restricted`."""


def after(seconds: float) -> dict[str, Any]:
    """Return fields that end a recording which would otherwise not end."""
    return {"until": lambda world: world.seconds > seconds, "lasts": 0}


def _registry() -> dict[str, Any]:
    """Return a pod that serves an empty registry on the node's loopback; the runtime uses HTTP for it."""
    probe = {"tcpSocket": {"host": "127.0.0.1", "port": REGISTRY_PORT}, "periodSeconds": 1}
    container = {"name": "registry", "image": DIGITS, "command": ["python", "-c", REGISTRY], "readinessProbe": probe}
    spec = {"hostNetwork": True, "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "registry"}, "spec": spec}


def _answers(kubectl: Kubectl, namespace: str) -> None:
    kubectl("wait", "--for=condition=Ready", "pod/registry", "--namespace", namespace, "--timeout=60s", timeout=70)


FROM_A_REGISTRY: dict[str, Any] = {"before": (_registry(),), "ready": _answers, "crowd": "registry"}


def _claim(storage_class: str) -> dict[str, Any]:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": spec}


def quota(**hard: str) -> dict[str, Any]:
    """Return a ResourceQuota of the namespace."""
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "compute"}, "spec": {"hard": hard}}


def _restrict(kubectl: Kubectl, namespace: str) -> None:
    """Let the namespace want PodSecurity `restricted`; the API server applies that a moment after the label is set."""
    kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    wait_until("a pod that is refused", lambda: _refuses_pods(kubectl, namespace), timeout=60)


def _refuses_pods(kubectl: Kubectl, namespace: str) -> bool:
    try:
        kubectl("run", "plain", f"--image={DIGITS}", "--dry-run=server", "--namespace", namespace)
    except ClusterFailed as error:
        return "violates PodSecurity" in str(error)
    return False


def _mounted(**volume: Any) -> dict[str, Any]:
    return {
        "pod": {"volumes": [{"name": "data", **volume}]},
        "container": {"volumeMounts": [{"name": "data", "mountPath": "/data"}]},
    }


def _init(script: str) -> dict[str, Any]:
    return {"initContainers": [{"name": "fetch-data", "image": "alpine:3.10", "command": ["sh", "-c", script]}]}


def _waits_for_master(world: World) -> bool:
    return world.runs("worker-0", "init-pytorch") and world.seconds > 15


STARTS: dict[str, Failure] = {
    "pod-start-error": worker("There is no such program in the worker's image.", {"command": ["/opt/train"]}),
    "pod-run-container-error": worker(
        "There is no such program in the worker's image, and the kubelet tries again and again.",
        {"command": ["/opt/train"]},
        job={"restart_policy": "OnFailure"},
        **after(15),
    ),
    "pod-not-executable": worker(
        "The worker's program is a file that cannot be executed.", {"command": ["/etc/hosts"]}
    ),
    "pod-not-on-path": worker(
        "The worker's program is not on the image's path.", {"command": ["torchrun", "train.py"]}
    ),
    "pod-image-pull-backoff": worker(
        "The worker's image is not in the registry.",
        {**TRAINING, "image": "localhost:5000/digits:1"},
        limits={"start_timeout": 30},
        **FROM_A_REGISTRY,
        **after(90),
    ),
    "pod-image-pull-denied": worker(
        "The registry wants a pull secret for the worker's image.",
        {**TRAINING, "image": "localhost:5000/private/digits:1"},
        limits=STANDS_STILL,
        **FROM_A_REGISTRY,
        **after(45),
    ),
    "pod-image-pull-no-route": worker(
        "The registry of the worker's image cannot be reached.",
        {**TRAINING, "image": "docker.io/library/absent:1"},
        limits={"start_timeout": 30},
        **after(90),
    ),
    "pod-pulling-for-long": worker(
        "The master's image is being pulled for long; the worker waits for the master meanwhile.",
        TRAINING,
        job={"master": {**TRAINING, "image": "localhost:5000/slow/digits:1"}},
        limits=STANDS_STILL,
        **FROM_A_REGISTRY,
        **after(30),
    ),
    "pod-invalid-image-name": worker(
        "The name of the worker's image is none.", {**TRAINING, "image": "docker.io/Digits:1"}, **after(35)
    ),
    "pod-image-never-pull": worker(
        "The worker's image must not be pulled, and it is not on the node.",
        {**TRAINING, "image": "docker.io/library/absent:1"},
        job={"image_pull_policy": "Never"},
        **after(25),
    ),
    "pod-missing-secret": alone(
        "A secret of the environment does not exist.",
        TRAINING,
        job={"env": {"TOKEN": {"secret": "tracker", "key": "token"}}},
        limits=STANDS_STILL,
        **after(30),
    ),
    "pod-missing-secret-key": alone(
        "A secret of the environment has no such key.",
        TRAINING,
        job={"env": {"TOKEN": {"secret": "tracker", "key": "token"}}},
        before=({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tracker"}, "stringData": {"user": "me"}},),
        limits=STANDS_STILL,
        **after(30),
    ),
    "pod-missing-config-map": alone(
        "A config map of the environment does not exist.",
        TRAINING,
        job={"env": {"LR": {"config_map": "tuning", "key": "lr"}}},
        limits=STANDS_STILL,
        **after(30),
    ),
    "pod-mount-missing-secret": alone(
        "A secret that is mounted does not exist.",
        TRAINING,
        limits=STANDS_STILL,
        **_mounted(secret={"secretName": "keys"}),
        **after(40),
    ),
    "pod-mount-missing-config-map": alone(
        "A config map that is mounted does not exist.",
        TRAINING,
        limits=STANDS_STILL,
        **_mounted(configMap={"name": "tuning"}),
        **after(40),
    ),
    "pod-failed-mount": alone(
        "A volume cannot be mounted on the node.",
        TRAINING,
        limits=STANDS_STILL,
        **_mounted(nfs={"server": "192.0.2.200", "path": "/export/data"}),
        **after(40),
    ),
    "pod-missing-folder": alone(
        "A folder of the node that is mounted does not exist.",
        TRAINING,
        limits=STANDS_STILL,
        **_mounted(hostPath={"path": "/export/data", "type": "Directory"}),
        **after(40),
    ),
    "pod-init-failed": worker(
        "An init container of the worker fails.", TRAINING, pod=_init("echo no such bucket; exit 4")
    ),
    "pod-init-crash-loop": alone(
        "An init container fails again and again.",
        TRAINING,
        job={"restart_policy": "OnFailure"},
        pod=_init("echo no such bucket; exit 4"),
        limits={"crash_loop_limit": 2},
        **after(50),
    ),
    "pod-init-stuck": alone(
        "An init container does not end.",
        TRAINING,
        pod=_init("echo fetching; sleep 3600"),
        limits=STANDS_STILL,
        **after(30),
    ),
    "pod-init-waits-for-master": worker(
        "The worker's init container waits for the master, which has no image.",
        TRAINING,
        job={"master": {**TRAINING, "image": "docker.io/library/absent:1"}},
        until=_waits_for_master,
        limits=STANDS_STILL,
        lasts=20,
    ),
    "pod-init-gave-up": worker(
        "The worker's init container gives up waiting for the master, which has no image.",
        TRAINING,
        job={"master": {**TRAINING, "image": "docker.io/library/absent:1"}},
        timeout=900,
    ),
    "pod-unschedulable": worker(
        "The worker asks for GPUs that no node has; nothing ends that by default.",
        {**TRAINING, "gpus": 2},
        crowd="nodes",
        **after(15),
    ),
    "pod-unschedulable-memory": alone(
        "The job asks for more memory than any node has.",
        {**TRAINING, "memory": "900Gi"},
        limits={"queue_timeout": 20},
        crowd="nodes",
        **after(30),
    ),
    "pod-unschedulable-selector": alone(
        "No node has the label that the job selects.",
        {**TRAINING, "node_selector": {"gpu": "a100"}},
        crowd="nodes",
        **after(15),
    ),
    "pod-claim-pending": alone(
        "The claim is bound to no volume: there is no such storage class.",
        TRAINING,
        job={"volumes": ["data:/data"]},
        before=(_claim("fast"),),
        crowd="nodes",
        **after(15),
    ),
    "pod-claim-missing": alone(
        "The claim does not exist.", TRAINING, job={"volumes": ["data:/data"]}, crowd="nodes", **after(15)
    ),
    "job-quota": worker(
        "The namespace's quota has room for one of the two pods.", TRAINING, before=(quota(pods="1"),), **after(40)
    ),
    "job-quota-memory": worker(
        "The namespace's quota has no room for the worker's memory.",
        {**TRAINING, "memory": "2Gi"},
        job={"memory": "100Mi"},
        before=(quota(**{"limits.memory": "1Gi", "requests.memory": "1Gi"}),),
        limits={"queue_timeout": 20},
        **after(40),
    ),
    "job-quota-unspecified": alone(
        "The namespace's quota wants every pod to say its memory, and the job does not.",
        TRAINING,
        before=(quota(**{"limits.memory": "1Gi"}),),
        limits=STANDS_STILL,
        **after(40),
    ),
    "job-admission-refused": worker(
        "The namespace wants PodSecurity `restricted`, and the job's pods are not.",
        TRAINING,
        ready=_restrict,
        limits=STANDS_STILL,
        **after(40),
    ),
    "job-init-refused": worker(
        "The namespace wants PodSecurity `restricted`; only the operator's own init container is not.",
        TRAINING,
        job={"container_security_context": HARDENED},
        ready=_restrict,
        limits=STANDS_STILL,
        **after(40),
    ),
    "job-missing-service-account": alone(
        "The pods' service account does not exist.",
        TRAINING,
        job={"service_account_name": "trainer"},
        limits=STANDS_STILL,
        **after(40),
    ),
    "job-missing-priority-class": alone(
        "The pods' priority class does not exist.",
        TRAINING,
        job={"priority_class_name": "urgent"},
        limits=STANDS_STILL,
        **after(40),
    ),
    "job-suspended": worker(
        "The job is suspended: a queue has it, or a person.", TRAINING, job={"suspend": True}, **after(15)
    ),
}
