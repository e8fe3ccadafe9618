"""Install Kubeflow Trainer and JobSet on a running cluster, for tests of TrainJobs, from the modules' manifests.

They are not part of every boot: most tests need no TrainJob, and two more operators load a small machine.
"""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING

from cluster import binaries, images
from cluster.operators import PROBES
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
    _apply_jobset(cluster)
    _apply_trainer(cluster, gates)


def wait(cluster: Cluster) -> None:
    """Wait for the webhooks, and create Trainer's own runtime for PyTorch.

    Raises:
        ClusterFailed: the webhooks do not respond in time.
    """
    wait_until("the webhooks of Trainer and JobSet", lambda: _is_ready(cluster), timeout=300)


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


def _is_ready(cluster: Cluster) -> bool:
    """Create the runtime, and check in a dry run that the webhooks accept a TrainJob and a JobSet.

    Raises:
        ClusterFailed: they do not accept them yet.
    """
    runtime = _folder(cluster, TRAINER_MODULE) / "manifests" / "base" / "runtimes" / "torch_distributed.yaml"
    cluster.kubectl("apply", "--server-side", "--filename", str(runtime))
    cluster.kubectl("create", "--dry-run=server", "--filename", "-", stdin=json.dumps(_PROBE_JOB))
    cluster.kubectl("create", "--dry-run=server", "--filename", "-", stdin=json.dumps(_PROBE_JOB_SET))
    return True


def _apply_jobset(cluster: Cluster) -> None:
    home = _copied(cluster, JOBSET_MODULE, "config")
    _apply(cluster, home, "config/default", program="jobset")


def _apply_trainer(cluster: Cluster, gates: str) -> None:
    home = _copied(cluster, TRAINER_MODULE, "manifests")
    overlay = home / "manifests" / "overlays" / "manager" / "kustomization.yaml"
    lines = overlay.read_text().splitlines(keepends=True)
    overlay.write_text("".join(line for line in lines if "third-party/jobset" not in line))
    flags = [f"--feature-gates={gates}"] if gates else []
    _apply(cluster, home, "manifests/overlays/manager", program="trainer-controller-manager", flags=flags)


def _apply(cluster: Cluster, home: Path, folder: str, *, program: str, flags: Sequence[str] = ()) -> None:
    """Apply a folder of manifests; its Deployment's image, with the name in the manifest, is made from this program."""
    more = [{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": flag} for flag in flags]
    patch = {"target": {"kind": "Deployment"}, "patch": json.dumps([*PROBES, *_SMALL, *more])}
    (home / "kustomization.yaml").write_text(json.dumps({"resources": [folder], "patches": [patch]}))
    rendered = _without_election(cluster.kubectl("kustomize", str(home)))
    found = re.search(r"^\s*(?:- )?image: (\S+)$", rendered, re.MULTILINE)
    if found is None:
        raise ClusterFailed(f"{folder} names no image")
    path = cluster.programs.folder(binaries.TRAINER) / program
    cluster.images.ensure(images.controller(found[1], path))
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "--filename", "-", stdin=rendered)


def _without_election(rendered: str) -> str:
    """Turn leader election off: one replica needs none, and a leader that the API server answers late ends itself."""
    off = {"leaderElect: true": "leaderElect: false", "- --leader-elect\n": "- --leader-elect=false\n"}
    for each, instead in off.items():
        rendered = rendered.replace(each, instead)
    return rendered


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
