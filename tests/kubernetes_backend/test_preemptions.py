"""Tests of jobs whose pods are evicted on a cluster, followed from a terminal with only the documented Role."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from cluster.images import INIT_IMAGE
from cluster.layout import NODE
from cluster.shell import until
from cluster_world import PATIENCE
from kubernetes_backend.endings import evict
from kubernetes_backend.terminal import SMALL, Terminal, person
from rbac import rules, rules_of_kinds

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result

    from cluster.boot import Cluster

WAITS_AT_FIRST = '[ "$PTJOB_ATTEMPT" = 2 ] || sleep 600'
GO = "/tmp/go"  # noqa: S108 - in a pod


def ran(
    terminal: Terminal,
    program: str,
    evicted: str,
    *,
    kind: str = "PyTorchJob",
    then: Callable[[str], None] = lambda _: None,
) -> Result:
    """Run a job of two pods; evict this one as soon as it runs, and call `then` with its uid."""
    words = ("--kind", kind, "--name", "digits", "--image", INIT_IMAGE, "--workers", "2", *SMALL, "-o", "json")
    last = ("--max-preemptions", "1", "--timeout", f"{PATIENCE:.0f}s", "--", "sh", "-c", program)
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(terminal.ptjob, "run", *words, *last)
        meta = until(f"{evicted} to run", lambda: running_pod(terminal, evicted), timeout=PATIENCE)
        evict(terminal.cluster.kubectl, terminal.namespace, meta["name"])
        then(meta["uid"])
        return running.result()


def running_pod(terminal: Terminal, replica: str, *, but: str = "") -> dict[str, Any] | None:
    """Return the metadata of the replica's running pod, unless it has this uid; a TrainJob's has a suffix."""
    pods = terminal.cluster.kubectl.list("pods", namespace=terminal.namespace)
    running = (pod["metadata"] for pod in pods if pod["status"].get("phase") == "Running")
    return next((meta for meta in running if meta["name"].startswith(replica) and meta["uid"] != but), None)


def test_a_run_survives_an_eviction(cluster: Cluster, namespace: str) -> None:
    """One call trains twice, and says what was lost."""
    result = ran(person(cluster, namespace, rules()), WAITS_AT_FIRST, "digits-worker-0")

    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["phase"], told["attempt"]) == ("Succeeded", 2)
    (lost,) = told["preemptions"]
    assert (lost["node"], lost["cause"], lost["seconds_lost"] < PATIENCE) == (NODE, "evicted", True)


def test_a_pod_that_its_operator_replaces_within_the_job_is_no_attempt(trained: Cluster, namespace: str) -> None:
    """A batch Job, as below a TrainJob, makes a new pod in place of an evicted one; the TrainJob goes on."""
    terminal = person(trained, namespace, rules_of_kinds())

    def let_end(before: str) -> None:
        until("a new pod", lambda: running_pod(terminal, "digits-node-0-1", but=before), timeout=PATIENCE)
        for replica in ("digits-node-0-0", "digits-node-0-1"):
            meta = running_pod(terminal, replica, but=before)
            assert meta is not None
            trained.kubectl.let_end(meta["name"], "touch", GO, namespace=namespace)

    program = f"until [ -e {GO} ]; do sleep 0.2; done"
    result = ran(terminal, program, "digits-node-0-1", kind="TrainJob", then=let_end)

    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["attempt"], told["preemptions"]) == (1, [])
