"""Tests of `top`, `doctor` and `data` on a cluster: with the optional rights, and with the documented Role alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from cluster.gpu import gpus
from cluster.images import INIT_IMAGE
from cluster.layout import NODE
from cluster.shell import until
from cluster.tenants import rules_everywhere
from cluster_world import PATIENCE
from kubernetes_backend.terminal import SMALL, Terminal, person
from rbac import cluster_rules, optional_rules, rules

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cluster.boot import Cluster

pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


@pytest.fixture
def trusted(cluster: Cluster, namespace: str) -> Iterator[Terminal]:
    """Return the terminal of a user who also has the optional components."""
    terminal = person(cluster, namespace, [*rules(), *optional_rules()])
    with rules_everywhere(cluster, namespace, cluster_rules()):
        yield terminal


def test_nodes_and_jobs_are_shown_with_their_cards(trusted: Terminal) -> None:
    """As in `arena top node` and `arena top job`: GPUs that exist, are in use, are requested and are allocated."""
    with gpus(trusted.cluster, 4):
        trusted.ptjob("submit", "--name", "one", "--image", INIT_IMAGE, "--gpus", "1", *SMALL, "sleep 600")
        trusted.ptjob("submit", "--name", "many", "--image", INIT_IMAGE, "--gpus", "8", *SMALL, "sleep 600")
        until("one to run", lambda: "Running" in trusted.ptjob("list").output, timeout=PATIENCE)
        until(
            "its card to be taken",
            lambda: trusted.ptjob("top", "node").output.splitlines()[-1] == "1/4 (25%)",
            timeout=PATIENCE,
        )

        nodes = trusted.ptjob("top", "node").output.splitlines()
        jobs = trusted.ptjob("top", "job").output.splitlines()
        trusted.ptjob("delete", "one", "many")

    assert nodes[1].split()[0] == NODE
    assert nodes[1].split()[3:6] == ["ready", "4", "1"]
    rows = {line.split()[0]: line.split() for line in jobs[1:3]}
    assert rows["one"][1:4] == ["1", "1", "Running"]
    assert rows["one"][-1] == NODE
    assert rows["many"][1:4] == ["8", "0", "Pending"]
    assert jobs[-3:] == ["1", "Total Requested GPUs of Training Job:", "9"]


def test_usage_is_unknown_without_the_right_to_it(terminal: Terminal) -> None:
    """A message names what is missing; the rest of the table is there, and no value is zero."""
    terminal.ptjob("submit", "--name", "runs", "--image", INIT_IMAGE, *SMALL, "sleep 600")
    until("it to run", lambda: "Running" in terminal.ptjob("list").output, timeout=PATIENCE)

    result = terminal.ptjob("top", "job", "runs")

    assert result.exit_code == 0
    assert "what replicas use is unknown" in result.stderr
    assert "deploy/components/usage" in result.stderr
    assert result.stdout.splitlines()[1].split()[0] == "runs-master-0"
    assert result.stdout.splitlines()[1].split()[-4:] == ["-"] * 4


def test_a_claim_is_made_filled_listed_and_read(trusted: Terminal, digits_image: str, tmp_path: Path) -> None:
    """A pod mounts the claim, and is deleted afterwards; a job sees what was copied."""
    (tmp_path / "data" / "deep").mkdir(parents=True)
    (tmp_path / "data" / "deep" / "big").write_bytes(bytes(range(256)) * 4096)
    look = ("--image", digits_image)

    made = trusted.ptjob("data", "create", "datasets", "--size", "1Gi", "--access-mode", "ReadWriteOnce")
    put = trusted.ptjob("data", "cp", *look, str(tmp_path / "data"), "pvc://datasets/digits")
    listed = json.loads(trusted.ptjob("data", "ls", *look, "pvc://datasets/digits/deep", "-o", "json").stdout)
    run = trusted.ptjob(
        *("run", "--name", "reads", *look, *SMALL, "-d", "datasets:/d", "--"),
        *("python3", "-c", "print(len(open('/d/digits/deep/big', 'rb').read()))"),
    )
    got = trusted.ptjob("data", "cp", *look, "pvc://datasets/digits/deep/big", str(tmp_path / "back"))
    missing = trusted.ptjob("data", "ls", *look, "pvc://datasets/none")

    assert made.exit_code == 0, made.output
    assert put.exit_code == 0, put.output
    assert [(each["name"], each["bytes"]) for each in listed] == [("big", 2**20)]
    assert run.stdout == "1048576\n", run.output
    assert got.exit_code == 0, got.output
    assert (tmp_path / "back").read_bytes() == bytes(range(256)) * 4096
    assert (missing.exit_code, "there is no none" in missing.output) == (2, True)
    row = trusted.ptjob("data", "list").output.splitlines()[1].split()
    assert row[:4] == ["datasets", "ReadWriteOnce", "1Gi", "Bound"]
    until("its pods to be gone", lambda: "ptjob-files" not in " ".join(trusted.pods()), timeout=PATIENCE)
    assert trusted.ptjob("data", "ls", *look, "pvc://none").exit_code == 3


def test_files_are_reached_in_a_hardened_namespace_by_a_named_user(
    cluster: Cluster, hardened_namespace: str, digits_image: str
) -> None:
    """Restricted pods, a quota and a limit range: the pod passes all of them if `--user` names its user."""
    terminal = person(cluster, hardened_namespace, [*rules(), *optional_rules()])
    terminal.ptjob("data", "create", "datasets", "--size", "1Gi", "--access-mode", "ReadWriteOnce")

    refused = terminal.ptjob("data", "ls", "--image", digits_image, "pvc://datasets")
    as_user = ("data", "ls", "--image", digits_image, "--user", "1000", "pvc://datasets")
    closed = terminal.ptjob(*as_user)
    cluster.volume("datasets", namespace=hardened_namespace).chmod(0o777)  # as storage with fsGroup would set it
    listed = terminal.ptjob(*as_user)

    assert refused.exit_code == 1
    assert "violates PodSecurity" in refused.output
    assert (closed.exit_code, "Permission denied" in closed.output) == (2, True)
    assert listed.exit_code == 0, listed.output
