"""Tests of `ptjob submit`, `run`, `suspend` and others on a cluster, with only the documented Role."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from cluster.shell import until
from cluster_world import PATIENCE
from kubernetes_backend.finished import claim

if TYPE_CHECKING:
    from kubernetes_backend.terminal import Terminal

pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


def test_a_run_trains_verifies_and_says_so(terminal: Terminal, digits_image: str) -> None:
    """As in an Airflow task: the log while it runs, the model verified inside the cluster, the exit code."""
    terminal.cluster.kubectl.apply(claim(terminal.namespace))
    write = "import os; print('trains'); open(os.environ['PTJOB_MODEL_PATH'], 'w').write('m' * 10)"

    words = ("--image", digits_image, "--data", "data:/data", "--model", "/data/model.pt")
    result = terminal.ptjob("run", "--name", "digits", *words, "--", "python3", "-c", write)

    assert result.exit_code == 0, result.output
    assert result.stdout == "trains\n"
    found = json.loads(terminal.ptjob("get", "digits", "-o", "json").stdout)
    assert (found["phase"], found["model"]["bytes"]) == ("Succeeded", 10)


def test_get_shows_the_reasons_of_a_job_that_waits(terminal: Terminal) -> None:
    """The reasons come from the cluster, for pods that it does not create and for pods that do not start."""
    kubectl = ("--namespace", terminal.namespace, "create", "quota", "compute", "--hard=limits.memory=100Mi")
    terminal.cluster.kubectl(*kubectl)
    missing = [{"name": "keys", "secret": {"secretName": "no-such-secret"}}]
    mounts = [{"name": "keys", "mountPath": "/keys"}]
    fields = {"volumes": missing, "volume_mounts": mounts, "worker": {"memory": "1Gi"}}
    name = terminal.submit("waits", "sleep 600", **fields).ref.name

    def said() -> str:
        return str(json.loads(terminal.ptjob("get", name, "-o", "json").stdout)["waiting"])

    until(
        "both reasons",
        lambda: all(text in said() for text in ("the quota compute allows", "no-such-secret")),
        timeout=PATIENCE,
    )

    assert f"{name}-master-0: FailedMount" in said()
    assert f"{name}-worker-0: not created" in said()
