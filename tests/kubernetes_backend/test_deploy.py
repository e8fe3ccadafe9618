"""Tests of `kubectl apply -k`: the base and the components give an account the rights that they list."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from typing import TYPE_CHECKING

import pytest

from cluster.tenants import kubeconfig_of
from kubernetes_backend.finished import claim
from kubernetes_backend.terminal import Terminal
from rbac import FOLDERS, ROOT, rules_in, rules_of_kinds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cluster.boot import Cluster

SHARED = ("ptjob-runtimes", "ptjob-cluster-view")
"""The objects that components create in the whole cluster."""

pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


def fitted(folder: Path, namespace: str, *, components: bool) -> Path:
    """Return a copy of `deploy/` with another namespace and, if requested, every component enabled."""
    copy = shutil.copytree(ROOT / "deploy", folder / "deploy")
    text = (copy / "kustomization.yaml").read_text().replace("namespace: trainings", f"namespace: {namespace}")
    (copy / "kustomization.yaml").write_text(re.sub("^  # -", "  -", text, flags=re.MULTILINE) if components else text)
    return copy


@contextlib.contextmanager
def applied(cluster: Cluster, folder: Path) -> Iterator[None]:
    """Apply the folder; delete its cluster-wide objects afterwards."""
    try:
        cluster.kubectl("apply", "--kustomize", str(folder))
        yield
    finally:
        cluster.kubectl("delete", "clusterrole,clusterrolebinding", *SHARED, "--ignore-not-found")


def test_the_account_of_the_base_trains(cluster: Cluster, namespace: str, tmp_path: Path, digits_image: str) -> None:
    """`ptjob doctor` has all that jobs need and names optional rights; a job writes a model, and `get` shows it."""
    write = "import os; open(os.environ['PTJOB_MODEL_PATH'], 'w').write('m' * 10)"
    words = ("--image", digits_image, "--data", "data:/data", "--model", "/data/model.pt")
    cluster.kubectl.apply(claim(namespace))

    with applied(cluster, fitted(tmp_path, namespace, components=False)):
        account = kubeconfig_of(cluster, namespace, rules_of_kinds())
    terminal = Terminal(kubeconfig=account, cluster=cluster, namespace=namespace)
    checked = terminal.ptjob("doctor")
    trained = terminal.ptjob("run", "--name", "digits", *words, "--", "python3", "-c", write)

    assert checked.exit_code == 0, checked.output
    assert "Kubernetes v1.34.4" in checked.output
    assert "PyTorchJob of kubeflow.org/v1" in checked.output
    assert "all 16 that jobs need" in checked.output
    assert "missing: nodes list in the whole cluster" in checked.output
    assert "if it is wanted: the ClusterRole of deploy/components/cluster-view" in checked.output
    assert trained.exit_code == 0, trained.output
    assert json.loads(terminal.ptjob("get", "digits", "-o", "json").stdout)["model"]["bytes"] == 10


def test_every_component_gives_the_account_its_rights(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    """All components together grant exactly the rights in their files, including those of ClusterRoles."""
    folders = [folder for folder in FOLDERS if not folder.endswith("/pipelines-step")]
    wanted = [rule for folder in folders for kind in ("Role", "ClusterRole") for rule in rules_in(folder, kind)]

    with applied(cluster, fitted(tmp_path, namespace, components=True)):
        account = kubeconfig_of(cluster, namespace, wanted)
        listed = cluster.kubectl_as(account)("get", "nodes", "--output", "name")

    assert listed.startswith("node/")
