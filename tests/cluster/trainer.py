"""Install Kubeflow Trainer and JobSet on a running cluster, for tests of TrainJobs, from the modules' manifests.

They are not part of every boot: most tests need no TrainJob, and two more operators load a small machine.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from cluster import binaries, images, operators
from cluster.shell import ClusterFailed, wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from cluster.boot import Cluster
    from cluster.kubectl import Kubectl

TRAINER_MODULE = "github.com/kubeflow/trainer/v2"
JOBSET_MODULE = "sigs.k8s.io/jobset"
TRAINER_NAMESPACE, JOBSET_NAMESPACE = "kubeflow-system", "jobset-system"
RUNTIME = "torch-distributed"

_USER = 65532
_SMALL = [
    {"op": "add", "path": "/spec/template/spec/securityContext", "value": {"runAsNonRoot": True, "runAsUser": _USER}},
    {"op": "add", "path": "/spec/template/spec/containers/0/imagePullPolicy", "value": "IfNotPresent"},
    {"op": "add", "path": "/spec/template/spec/containers/0/resources", "value": {}},
]
"""The images built here set no user, so the pods do. The operators stay in the cluster, so they request no CPU."""


def install(cluster: Cluster) -> None:
    """Install Trainer and JobSet, with Trainer's own runtime for PyTorch, unless they are installed.

    Raises:
        ClusterFailed: their webhooks do not respond in time.
    """
    if not _judges(cluster):
        apply(cluster)
    wait(cluster)


def apply(cluster: Cluster, *, gates: str = "") -> None:
    """Apply the manifests of Trainer and JobSet; call `wait` before you need them.

    Args:
        cluster: the cluster.
        gates: Trainer's feature gates, such as `TrainJobStatus=true`.
    """
    home = operators.copied(cluster, binaries.TRAINER, JOBSET_MODULE, "config")
    _apply(cluster, home, "config/default", "jobset")
    home = operators.copied(cluster, binaries.TRAINER, TRAINER_MODULE, "manifests")
    overlay = home / "manifests" / "overlays" / "manager" / "kustomization.yaml"
    lines = overlay.read_text().splitlines(keepends=True)
    overlay.write_text("".join(line for line in lines if "third-party/jobset" not in line))
    flags = [f"--feature-gates={gates}"] if gates else []
    _apply(cluster, home, "manifests/overlays/manager", "trainer-controller-manager", flags=flags)


def wait(cluster: Cluster) -> None:
    """Wait for the webhooks, and create Trainer's own runtime for PyTorch.

    Raises:
        ClusterFailed: the webhooks do not respond in time.
    """
    create = ("create", "--dry-run=server", "--filename", "-")

    def is_ready() -> bool:
        cluster.kubectl("apply", "--server-side", "--filename", str(runtime))
        for each in (_PROBE_JOB, _PROBE_JOB_SET):
            cluster.kubectl(*create, stdin=json.dumps(each))
        return True

    runtime = runtimes() / "torch_distributed.yaml"
    wait_until("the webhooks of Trainer and JobSet", is_ready, timeout=300)


def runtimes() -> Path:
    """Return the folder of the runtimes that Trainer ships."""
    return binaries.module_folder(binaries.TRAINER, TRAINER_MODULE) / "manifests" / "base" / "runtimes"


def apply_runtimes(kubectl: Kubectl, *runtimes: Mapping[str, Any]) -> None:
    """Apply runtimes of namespaces, and wait until Trainer's webhook knows them: it reads them from its cache."""
    kubectl.apply(*runtimes)
    for meta in (each["metadata"] for each in runtimes):
        place = {"name": "probe", "namespace": meta["namespace"]}
        named = {"runtimeRef": {"kind": "TrainingRuntime", "name": meta["name"]}}
        job = json.dumps({**_PROBE_JOB, "metadata": place, "spec": named})
        wait_until(f"the runtime {meta['name']}", lambda job=job: _knows_runtime(kubectl, job), timeout=300)


def _knows_runtime(kubectl: Kubectl, job: str) -> bool:
    try:
        kubectl("create", "--dry-run=server", "--filename", "-", stdin=job)
    except ClusterFailed as error:
        return "denied the request" in str(error) and "must be created before" not in str(error)
    return True


def _judges(cluster: Cluster) -> bool:
    try:
        cluster.kubectl("create", "--dry-run=server", "--filename", "-", stdin=json.dumps(_PROBE_JOB))
    except ClusterFailed:
        return False
    return True


def _apply(cluster: Cluster, home: Path, resource: str, program: str, *, flags: Sequence[str] = ()) -> None:
    """Apply manifests without leader election: a leader that the API server answers late ends itself."""
    more = [{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": flag} for flag in flags]
    manifests = operators.rendered(cluster, home, resource, [*operators.PROBES, *_SMALL, *more])
    off = {"leaderElect: true": "leaderElect: false", "- --leader-elect\n": "- --leader-elect=false\n"}
    for each, instead in off.items():
        manifests = manifests.replace(each, instead)
    operators.apply(cluster, manifests, cluster.programs.folder(binaries.TRAINER) / program)


_PROBE_JOB = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": "probe", "namespace": "default"},
    "spec": {"runtimeRef": {"name": RUNTIME}, "trainer": {"image": images.INIT_IMAGE}},
}
_POD = {"restartPolicy": "Never", "containers": [{"name": "node", "image": images.INIT_IMAGE}]}
_PROBE_JOB_SET = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "metadata": {"name": "probe", "namespace": "default"},
    "spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": {"spec": _POD}}}}]},
}
