from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cluster.boot import Cluster
from cluster.fixtures import OWN_NUMBER, skip_unless_possible
from cluster.layout import Layout
from cluster.machine import KUBELET_SYSCTLS
from cluster.shell import run

if TYPE_CHECKING:
    from collections.abc import Iterator

NUMBER = 2


@pytest.fixture
def second() -> Iterator[Cluster]:
    """Yield a third cluster, not started; afterwards remove whatever the test left of it."""
    cluster = Cluster.of(Layout.of(os.environ, number=NUMBER), operator=False)
    skip_unless_possible(cluster)
    yield cluster
    cluster.down()
    shutil.rmtree(cluster.layout.home, ignore_errors=True)


def footprint() -> dict[str, str]:
    """Return the settings of this machine that a cluster could change."""
    others = {Layout.of(os.environ, number=number).link for number in (0, OWN_NUMBER)}
    interfaces = {entry.name for entry in Path("/sys/class/net").iterdir()} - others
    return {
        "interfaces": " ".join(sorted(interfaces)),
        "iptables": run(["iptables", "-t", "nat", "-S"], timeout=10) + run(["iptables", "-S"], timeout=10),
        "mounts": Path("/proc/self/mounts").read_text(),
        "hostname": run(["uname", "--nodename"], timeout=10),
        **{name: Path("/proc/sys", name).read_text() for name in KUBELET_SYSCTLS},
    }


def command_line(word: str, **pipes: int) -> subprocess.Popen[str]:
    """Start the command of the Makefile for that cluster."""
    command = [sys.executable, "-m", "cluster", word, "--number", str(NUMBER)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    return subprocess.Popen(command, env=environment, text=True, **pipes)


def test_a_held_cluster_goes_down_when_whoever_held_it_was_killed(second: Cluster) -> None:
    """`make test` holds the cluster through a pipe, which is closed however the other process ends.

    While the cluster is up there is no route out of it; afterwards this machine is unchanged.
    """
    before = footprint()
    with command_line("hold", stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        access = holder.stdout.readline()
        held, routes = second.machine.leftovers(), second.machine.run(["ip", "route"])
        holder.stdin.close()
        code = holder.wait(timeout=240)

    assert access == f"export KUBECONFIG={second.layout.kubeconfig}\n"
    assert {line.split()[0] for line in held} >= {"process", "interface"}
    assert "default" not in routes
    assert code == 0
    assert second.machine.leftovers() == []
    assert footprint() == before
