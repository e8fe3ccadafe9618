"""Tests of a job's TensorBoard on a cluster, reached through the API server."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Self

import pytest

from cluster.images import INIT_IMAGE
from cluster.shell import bare_environment, until
from cluster_world import PATIENCE
from curves import WRITES, tags
from kubernetes_backend.finished import claim
from kubernetes_backend.terminal import Terminal, person
from rbac import rules, rules_of_kinds, tensorboard_rules

if TYPE_CHECKING:
    from cluster.boot import Cluster

pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

WRITES_AND_WAITS = f"""
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
{WRITES}
print("written", flush=True)
signal.sigwait([signal.SIGTERM])
"""
SMALL = ("--cpu", "100m", "--memory", "256Mi", "--termination-grace-period-seconds", "1")


@pytest.fixture
def terminal(cluster: Cluster, namespace: str) -> Terminal:
    """Return the terminal of a user with two documented Roles."""
    return permitted(cluster, namespace)


def permitted(cluster: Cluster, namespace: str, *, kind: str = "PyTorchJob") -> Terminal:
    """Return such a terminal for a namespace that has a claim; another kind has a Role of its own."""
    may = rules() if kind == "PyTorchJob" else rules_of_kinds()
    cluster.kubectl.apply(claim(namespace))
    return person(cluster, namespace, [*may, *tensorboard_rules()])


class Looking:
    """Runs `ptjob tensorboard` in a process of its own, which ends with the block at the latest."""

    def __init__(self, terminal: Terminal, *words: str) -> None:
        environment = bare_environment(
            terminal.kubeconfig.parent,
            KUBECONFIG=str(terminal.kubeconfig),
            AIRFLOW_HOME=str(terminal.kubeconfig.parent),
        )
        program = "from ptjob_provider.cli import main; main()"
        command = [sys.executable, "-c", program, "tensorboard", *words]
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.address = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Terminate the process; kill it if that does not end it."""
        with self.process:
            if self.process.poll() is None:
                self.process.terminate()
                try:
                    self.process.wait(timeout=60)
                except subprocess.TimeoutExpired:
                    self.process.kill()

    def tags(self) -> dict[str, dict[str, object]]:
        """Return the page's scalar tags once its address is printed."""
        assert self.process.stdout is not None
        self.address = self.address or self.process.stdout.readline().strip()
        assert self.address, self.process.communicate(timeout=60)
        return tags(self.address, timeout=PATIENCE)

    def end(self, number: signal.Signals) -> tuple[int, str]:
        """Send a signal; return the exit code and stderr."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said


def address(terminal: Terminal, job: str) -> str:
    """Return the job's TensorBoard address from `ptjob get`."""
    return str(json.loads(terminal.ptjob("get", job, "-o", "json").stdout)["tensorboard_url"])


def lookers(terminal: Terminal) -> list[str]:
    """Return the pods that `ptjob tensorboard` has started."""
    return [name for name in names(terminal, "pods") if name.startswith("ptjob-tensorboard")]


def names(terminal: Terminal, kind: str) -> list[str]:
    return [each["metadata"]["name"] for each in terminal.cluster.kubectl.list(kind, namespace=terminal.namespace)]


def test_a_tensorboard_stands_beside_a_job_while_it_trains(terminal: Terminal, digits_image: str) -> None:
    """Its URL is in `get` and `list`; `ptjob tensorboard` reaches it, and afterwards shows the written events.

    The claim is for one node, so TensorBoard ends with the training. A pod that the command started is deleted when the
    command ends.
    """
    words = ("--image", digits_image, "--data", "data:/data", "--tfevents", "/data/logs", "--tensorboard", *SMALL)
    submitted = terminal.ptjob("submit", "--name", "curves", *words, "--", "python3", "-c", WRITES_AND_WAITS)
    assert submitted.exit_code == 0, submitted.output
    there = ("--namespace", terminal.namespace)
    written = ("logs", "curves-master-0", *there, "--ignore-errors")
    until("its events", lambda: "written" in terminal.cluster.kubectl(*written), timeout=PATIENCE)
    ready = ("rollout", "status", "deployment/curves-tensorboard", *there, f"--timeout={PATIENCE}s")
    terminal.cluster.kubectl(*ready, timeout=PATIENCE + 10)

    shown = address(terminal, "curves")
    (listed,) = json.loads(terminal.ptjob("list", "-o", "json").stdout)
    with Looking(terminal, "curves") as looking:
        seen, beside, ended = looking.tags(), lookers(terminal), looking.end(signal.SIGINT)

    assert list(seen.values()) == [{"loss": {"displayName": "", "description": ""}}], seen
    assert (ended[0], beside) == (0, []), ended
    assert re.fullmatch(r"http://(curves-tensorboard\.\S+\.svc:6006|[0-9.]+:3\d{4})/", shown)
    assert listed["tensorboard_url"] == shown

    terminal.cluster.kubectl.let_end("curves-master-0", "sh", "-c", "kill 1", namespace=terminal.namespace)
    followed = terminal.ptjob("follow", "curves")
    assert followed.exit_code == 0, followed.output
    assert json.loads(terminal.ptjob("get", "curves", "-o", "json").stdout)["tensorboard_url"] is None
    assert "curves-tensorboard" not in names(terminal, "services") + names(terminal, "deployments")

    with Looking(terminal, "curves") as after:
        assert list(after.tags().values()) == list(seen.values())
        assert len(lookers(terminal)) == 1
        assert after.end(signal.SIGHUP)[0] == 0
    terminal.ptjob("delete", "curves")
    with Looking(terminal, "pvc://data/logs", "--image", digits_image) as gone:
        assert list(gone.tags().values()) == list(seen.values())
        assert gone.end(signal.SIGTERM)[0] == 0
    until("the pods to go", lambda: not lookers(terminal), timeout=PATIENCE)


@pytest.mark.parametrize("kind", ["PyTorchJob", "TrainJob"])
def test_a_tensorboard_is_deleted_with_its_job(kind: str, trained: Cluster, hardened_namespace: str) -> None:
    """This includes a job that never ran, where pods are restricted, counted and limited.

    Its TensorBoard pod is admitted and waits for one of the job's pods; there is no node address yet.
    """
    terminal = permitted(trained, hardened_namespace, kind=kind)
    user = ("--security-context", "{runAsUser: 1000, runAsNonRoot: true}")
    words = ("--kind", kind, "--data", "data:/data", "--tfevents", "/data/logs", "--tensorboard", "--suspend")
    words += (*user, *SMALL)
    submitted = terminal.ptjob("submit", "--name", "paused", "--image", INIT_IMAGE, *words, "sleep 600")
    assert submitted.exit_code == 0, submitted.output

    shown = json.loads(terminal.ptjob("get", "paused", "-o", "json").stdout)["tensorboard_url"]
    there = partial(terminal.cluster.kubectl.list, "pods", namespace=terminal.namespace)
    pods = until("its pod, which its Deployment has made", lambda: there() or None, timeout=PATIENCE)
    terminal.ptjob("delete", "paused")

    assert shown == f"http://paused-tensorboard.{terminal.namespace}.svc:6006/"
    assert [pod["status"]["phase"] for pod in pods] == ["Pending"]
    until("the Deployment to go", lambda: not names(terminal, "deployments"), timeout=PATIENCE)
    until("the Service to go", lambda: not names(terminal, "services"), timeout=PATIENCE)
