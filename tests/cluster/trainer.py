"""Kubeflow Trainer and JobSet on a cluster that is up: applied by whoever needs TrainJobs, from the modules' manifests.

They are no part of every boot: most tests need no TrainJob, and two more operators take their share of a small machine.
"""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING

from cluster import binaries, images
from cluster.operators import QUICK_PROBE
from cluster.shell import ClusterFailed, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from cluster.boot import Cluster

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
"""Their images name no user here; and they stay, where two replicas that ask for a core each need both of the node."""


def install(cluster: Cluster) -> None:
    """Have Trainer and JobSet on the cluster, with Trainer's own runtime for PyTorch; nothing is done if they are.

    Raises:
        ClusterFailed: they do not judge jobs in time.
    """
    if not _judges(cluster):
        apply(cluster)
    wait(cluster)


def apply(cluster: Cluster) -> None:
    """Have Trainer and JobSet come up; `wait` before they are needed."""
    _apply_jobset(cluster)
    _apply_trainer(cluster)


def wait(cluster: Cluster) -> None:
    """Have Trainer's own runtime for PyTorch, and TrainJobs judged.

    Raises:
        ClusterFailed: not in time.
    """
    wait_until("the webhooks of Trainer and JobSet", lambda: _is_ready(cluster), timeout=300)


def _judges(cluster: Cluster) -> bool:
    try:
        cluster.kubectl("create", "--dry-run=server", "--filename", "-", stdin=json.dumps(_PROBE_JOB))
    except ClusterFailed:
        return False
    return True


def _is_ready(cluster: Cluster) -> bool:
    """Create the runtime, which Trainer's webhook judges, and say whether a job of it would be taken.

    Raises:
        ClusterFailed: not yet.
    """
    runtime = _folder(cluster, TRAINER_MODULE) / "manifests" / "base" / "runtimes" / "torch_distributed.yaml"
    cluster.kubectl("apply", "--server-side", "--filename", str(runtime))
    cluster.kubectl("create", "--dry-run=server", "--filename", "-", stdin=json.dumps(_PROBE_JOB))
    cluster.kubectl("create", "--dry-run=server", "--filename", "-", stdin=json.dumps(_PROBE_JOB_SET))
    return True


def _apply_jobset(cluster: Cluster) -> None:
    home = _copied(cluster, JOBSET_MODULE, "config")
    _apply(cluster, home, "config/default", program="jobset")


def _apply_trainer(cluster: Cluster) -> None:
    home = _copied(cluster, TRAINER_MODULE, "manifests")
    overlay = home / "manifests" / "overlays" / "manager" / "kustomization.yaml"
    lines = overlay.read_text().splitlines(keepends=True)
    overlay.write_text("".join(line for line in lines if "third-party/jobset" not in line))
    _apply(cluster, home, "manifests/overlays/manager", program="trainer-controller-manager")


def _apply(cluster: Cluster, home: Path, folder: str, *, program: str) -> None:
    """Apply a folder of manifests; its one Deployment runs this program, from an image of the name that it asks for."""
    patch = {"target": {"kind": "Deployment"}, "patch": json.dumps([*QUICK_PROBE, *_SMALL])}
    (home / "kustomization.yaml").write_text(json.dumps({"resources": [folder], "patches": [patch]}))
    rendered = cluster.kubectl("kustomize", str(home))
    found = re.search(r"^\s*(?:- )?image: (\S+)$", rendered, re.MULTILINE)
    if found is None:
        raise ClusterFailed(f"{folder} names no image")
    path = cluster.programs.folder(binaries.TRAINER) / program
    cluster.images.ensure(images.controller(found[1], path))
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "--filename", "-", stdin=rendered)


def _folder(cluster: Cluster, module: str) -> Path:
    return cluster.layout.home / f"{module.replace('/', '-')}"


def _copied(cluster: Cluster, module: str, folder: str) -> Path:
    home = _folder(cluster, module)
    shutil.rmtree(home, ignore_errors=True)
    source = binaries.module_folder(binaries.TRAINER, module) / folder
    shutil.copytree(source, home / folder, copy_function=shutil.copyfile)
    return home


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
