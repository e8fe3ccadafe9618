"""Test of `make demo-cluster` on the test cluster."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from installed import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cluster.boot import Cluster


@pytest.fixture
def said(cluster: Cluster, digits_image: str, tmp_path: Path) -> Iterator[str]:
    """Run the demonstration as `make demo-cluster` does, return its output, and delete its namespace afterwards."""
    kubeconfig = str(cluster.layout.kubeconfig)
    where = ["--folder", str(tmp_path), "--kubeconfig", kubeconfig, "--image", digits_image]
    done = subprocess.run(
        [sys.executable, "-m", "demo", *where], cwd=ROOT, capture_output=True, text=True, timeout=1400, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    yield done.stdout
    cluster.kubectl("delete", "namespace", namespace_in(done.stdout), "--wait=false")


@pytest.mark.timeout(1500)
def test_the_dag_of_the_laptop_trains_in_pods_and_its_model_is_read_from_the_claim(cluster: Cluster, said: str) -> None:
    """Runs the same DAG file as on one machine: two pods, and log lines while they train."""
    jobs = cluster.kubectl.list("pytorchjobs", namespace=namespace_in(said))
    trained = next(job["metadata"]["name"] for job in jobs if "evaluate" not in job["metadata"]["name"])
    # The operator keeps only pods that had already ended when rank 0 ended, so read the events.
    events = cluster.kubectl.list("events", namespace=namespace_in(said))
    started = {event["involvedObject"]["name"] for event in events if event["reason"] == "Started"}
    accuracies = [float(value) for value in re.findall(r"held_out/accuracy = ([\d.]+)", said)]

    assert re.search(r"^train deferred │ .*epoch 1/", said, re.MULTILINE)
    assert {f"{trained}-master-0", f"{trained}-worker-0"} <= started
    assert "pvc://digits/models/" in said
    assert len(accuracies) == 2
    assert min(accuracies) >= 0.97


def namespace_in(said: str) -> str:
    """Return the namespace that the demonstration created."""
    found = re.search(r"namespace (digits-demo-\S+)", said)
    assert found is not None, said
    return found[1]
