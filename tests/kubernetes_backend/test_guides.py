"""The pages for whoever comes from a guide, on the cluster: with `ptjob` and as a task of Airflow."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_adapter.own_home import make_home
from cluster.gpu import RESOURCE, gpus
from cluster.tenants import service_account
from guide_pages import NO_GPU, OPERATORS, SWITCHED, TRAINED, accuracy
from kubernetes_backend.terminal import Terminal, terminal_of
from rbac import rules

if TYPE_CHECKING:
    from cluster.boot import Cluster

DAG = Path(__file__).parent.parent / "guides" / "manifest_dag.py"
JOB = "pytorch-dist-mnist-nccl"
ROLES = ("Master", "Worker")

pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


@pytest.fixture
def terminal(cluster: Cluster, namespace: str, tmp_path: Path) -> Terminal:
    """A person's who may do what the documented Role says."""
    account = service_account(cluster, namespace, rules())
    return replace(terminal_of(cluster, namespace, tmp_path), kubeconfig=account)


def test_the_session_of_the_operators_guide_trains(
    terminal: Terminal,
    digits_image: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each line of the page, on cards that the node says it has; kubectl finds the pods by the old label."""
    monkeypatch.chdir(tmp_path)
    Path(OPERATORS.file).write_text(OPERATORS.manifest(digits_image))
    said = {}

    with gpus(terminal.cluster, 2):
        for program, *words in OPERATORS.session():
            if program == "kubectl":
                said[program] = terminal.cluster.kubectl(*words, "-n", terminal.namespace)
                continue
            result = terminal.ptjob(*words)
            assert result.exit_code == 0, f"{words}: {result.output}"
            said[words[0]] = result.stdout
            if words[0] == "submit":
                made = terminal.cluster.kubectl.get("pytorchjob", JOB, namespace=terminal.namespace)

    changed = [record.getMessage() for record in caplog.records if SWITCHED in record.getMessage()]
    assert changed == [f"{terminal.namespace}/{JOB}: {role}: {SWITCHED}: {NO_GPU}" for role in ROLES]
    for role in ROLES:
        template = made["spec"]["pytorchReplicaSpecs"][role]["template"]
        (container,) = template["spec"]["containers"]
        assert (container["args"], "command" in container) == (["--backend", "gloo"], False)
        assert {name: str(amount) for name, amount in container["resources"]["limits"].items()} == {RESOURCE: "1"}
        assert template["metadata"]["annotations"]["sidecar.istio.io/inject"] == "false"
    assert TRAINED.search(said["follow"])
    assert accuracy(said["follow"]) > 0.9
    assert "phase: Succeeded" in said["get"]
    assert f"pytorchjob/{JOB}" in said["events"]
    assert f"{JOB}-master-0" in said["kubectl"]
    assert said["logs"].splitlines() == said["follow"].splitlines()[-2:]
    assert said["delete"].endswith("is deleted; its claims are as they were\n")


def test_the_operators_guide_is_a_task_of_airflow(
    cluster: Cluster, namespace: str, digits_image: str, tmp_path: Path
) -> None:
    """The same file as `manifest=`; no node has a card, and the wish for one is taken away by a field."""
    extra = {"kube_config_path": str(service_account(cluster, namespace, rules())), "namespace": namespace}
    file = tmp_path / OPERATORS.file
    file.write_text(OPERATORS.manifest(digits_image))
    home = make_home(
        tmp_path / "home",
        AIRFLOW__PTJOB__BACKEND="kubernetes",
        AIRFLOW_CONN_KUBERNETES_DEFAULT=json.dumps({"conn_type": "kubernetes", "extra": extra}),
        FIELDS=json.dumps({"manifest": str(file), "backend_without_gpu": "gloo", "gpus": 0}),
    )

    log = home.run(shutil.copy(DAG, tmp_path))

    result = json.loads((home.seen / "result.json").read_text())
    assert (result["phase"], result["job"]["namespace"]) == ("Succeeded", namespace)
    assert [f"{role}: {SWITCHED}: {NO_GPU}" in log for role in ROLES] == [True, True]
    assert "parameters agree on 2 ranks" in log
    assert accuracy(log) > 0.9
