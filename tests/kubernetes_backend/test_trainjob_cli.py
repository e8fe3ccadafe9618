"""Test of a TrainJob on the command line: each command handles it like a PyTorchJob."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from cluster.images import INIT_IMAGE
from cluster.shell import until
from cluster_world import PATIENCE
from kubernetes_backend.terminal import SMALL, Terminal, person
from rbac import rules_of_kinds

if TYPE_CHECKING:
    from cluster.boot import Cluster

SPEAKS = 'echo "rank $RANK begins"; until [ -e /tmp/go ]; do sleep 0.2; done; echo "rank $RANK ends"'


@pytest.fixture
def terminal(trained: Cluster, namespace: str) -> Terminal:
    """Return the terminal of a user with the documented Roles."""
    return person(trained, namespace, rules_of_kinds())


def until_there_are(pods: int, terminal: Terminal) -> list[str]:
    until(f"{pods} pods", lambda: len(terminal.pods()) == pods, timeout=PATIENCE)
    return terminal.pods()


def phase(terminal: Terminal) -> str:
    return str(json.loads(terminal.ptjob("get", "digits", "-o", "json").stdout)["phase"])


def test_every_command_handles_it(terminal: Terminal) -> None:
    """Submitted, suspended, resumed, listed, shown, followed, read and deleted."""
    [node] = terminal.cluster.kubectl.list("nodes")
    selector = f"kubernetes.io/hostname={node['metadata']['name']}"
    words = ("--kind", "TrainJob", "--name", "digits", "--image", INIT_IMAGE, "--workers", "2", *SMALL)

    said = [terminal.ptjob("submit", *words, "--node-selector", selector, "--toleration", "gpu", SPEAKS)]
    until_there_are(2, terminal)
    said += [terminal.ptjob("suspend", "digits")]
    until_there_are(0, terminal)
    suspended = phase(terminal)
    said += [terminal.ptjob("resume", "digits")]
    pods = until_there_are(2, terminal)
    until("it to run", lambda: phase(terminal) == "Running", timeout=PATIENCE)
    listed, shown = terminal.ptjob("list"), terminal.ptjob("get", "digits", "-o", "json")
    events = terminal.ptjob("events", "digits", "-o", "json")
    of_a_pod = terminal.cluster.kubectl.get("pod", pods[0], namespace=terminal.namespace)["spec"]
    for pod in pods:
        terminal.cluster.kubectl.let_end(pod, "touch", "/tmp/go", namespace=terminal.namespace)  # noqa: S108 - in a pod
    followed = terminal.ptjob("follow", "digits")
    other = terminal.ptjob("logs", "digits", "-i", "node-0-1")
    said += [listed, shown, events, followed, other, terminal.ptjob("delete", "digits")]

    assert [result.output for result in said if result.exit_code] == []
    assert suspended == "Suspended"
    assert "digits" in listed.stdout
    found = json.loads(shown.stdout)
    assert (found["job"]["kind"], found["rank0"]) == ("TrainJob", "digits-node-0-0")
    objects = {event["object"].partition("/")[0] for event in json.loads(events.stdout)}
    assert {"jobset", "job", "pod"} <= objects
    assert of_a_pod["nodeSelector"]["kubernetes.io/hostname"] == node["metadata"]["name"]
    assert {"key": "gpu", "operator": "Exists"} in of_a_pod["tolerations"]
    assert followed.stdout.splitlines() == ["rank 0 begins", "rank 0 ends"]
    assert other.stdout.splitlines() == ["rank 1 begins", "rank 1 ends"]
    until_there_are(0, terminal)
    assert terminal.ptjob("get", "digits").exit_code == 3
