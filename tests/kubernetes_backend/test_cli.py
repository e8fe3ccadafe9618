"""Tests of `ptjob` on a cluster: what it shows of an ended and of a running job."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from cluster_world import PATIENCE
from kubernetes_backend.terminal import Terminal, terminal_of

if TYPE_CHECKING:
    from pathlib import Path

    from cluster.boot import Cluster

FAILS = 'echo "rank $RANK begins"; [ $RANK = 1 ] && echo "ValueError: loss is nan" >&2 && exit 3; sleep 600'
SPEAKS = """
for n in 1 2 3; do echo "rank $RANK line $n"; done
until [ -e /tmp/go ]; do sleep 0.1; done
sleep 3
echo "rank $RANK ends as $PART"
"""

# A command may end during the TLS handshake of a connection that it no longer needs; its process closes it.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


@pytest.fixture
def terminal(cluster: Cluster, namespace: str, tmp_path: Path) -> Terminal:
    return terminal_of(cluster, namespace, tmp_path)


def test_a_failed_jobs_story_is_shown_after_its_pods_are_gone(terminal: Terminal) -> None:
    """The record on the job's object has what its task found: the replica, the cause, and its last lines."""
    submission = terminal.submit("bad", FAILS)
    name = submission.ref.name
    terminal.follow(submission)
    everything = ("delete", "pods", "--all", "--namespace", terminal.namespace, "--wait=true")
    terminal.cluster.kubectl(*everything, timeout=PATIENCE)

    listed = terminal.ptjob("list").output.splitlines()
    shown = terminal.ptjob("get", name).output
    found = json.loads(terminal.ptjob("get", name, "-o", "json").stdout)

    assert listed[0].split() == ["NAME", "PHASE", "REASON", "REPLICAS", "AGE", "RAN", "KIND", "OWNER"]
    assert listed[1].split()[:7] == [name, "Failed", "worker-0:", "exit", "code", "3", "2"]
    assert listed[1].endswith("digits.train manual__1, try 2")
    assert "  PyTorchJob  " in listed[1]
    assert "worker-0 (rank 1) exited with code 3" in shown
    assert "ValueError: loss is nan" in shown
    assert found["diagnosis"]["replica"] == f"{name}-worker-0"
    assert terminal.pods() == []


def test_logs_of_each_replica_are_read_and_followed_to_the_end(terminal: Terminal) -> None:
    """The log of rank 0 by default; `-t`, `-f`, `--all`, `--since`, `--since-time` and `--timestamps`.

    `-c` reads another container's log. A worker's own variables override those of all replicas.
    """
    submission = terminal.submit("speaks", SPEAKS, env={"PART": "everybody"}, worker={"env": {"PART": "worker"}})
    name = submission.ref.name

    terminal.lines_of(f"{name}-worker-0")
    terminal.lines_of(f"{name}-master-0")
    both = terminal.ptjob("logs", name, "--all").stdout.splitlines()
    instant = terminal.ptjob("logs", name, "--timestamps", "-t", "1").stdout.split()[0]
    young = terminal.ptjob("logs", name, "--since", "1h").stdout.splitlines()
    none = terminal.ptjob("logs", name, "--since-time", "2999-01-01").stdout
    init = terminal.ptjob("logs", name, "-i", "worker-0", "-c", "init-pytorch")
    terminal.release(f"{name}-worker-0")
    worker = terminal.ptjob("logs", name, "-i", "worker-0", "-t", "1", "-f", "-n", terminal.namespace)
    terminal.release(f"{name}-master-0")
    followed = terminal.ptjob("logs", name, "-f").stdout.splitlines()

    lines = [f"rank {rank} line {number}" for rank in (0, 1) for number in (1, 2, 3)]
    assert sorted(line.split(maxsplit=1)[1] for line in both) == lines
    assert {line.split()[0].strip("[]:") for line in both} == {"master-0", "worker-0"}
    assert datetime.fromisoformat(instant).tzinfo is not None
    assert (young, none) == (lines[:3], "")
    assert (init.exit_code, f"{name}-master-0" in init.stdout) == (0, True), init.output
    assert followed == [*lines[:3], "rank 0 ends as everybody"]
    assert worker.exit_code == 0
    assert worker.stdout.splitlines()[-1] == "rank 1 ends as worker"
    assert "rank 1 line 1" not in worker.stdout
