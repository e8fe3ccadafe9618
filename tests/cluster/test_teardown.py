from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cluster.boot import Cluster
from cluster.fixtures import skip_unless_possible
from cluster.layout import Layout
from cluster.machine import KUBELET_SYSCTLS
from cluster.shell import run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def second() -> Iterator[Cluster]:
    """Describe a cluster beside the session's; whatever a test leaves of it is removed."""
    cluster = Cluster.of(Layout.of(os.environ, number=1), operator=False)
    skip_unless_possible(cluster)
    yield cluster
    cluster.down()
    shutil.rmtree(cluster.layout.home, ignore_errors=True)


def footprint() -> dict[str, str]:
    """Return what of this machine a cluster could change."""
    interfaces = {entry.name for entry in Path("/sys/class/net").iterdir()} - {"ptjob0"}
    return {
        "interfaces": " ".join(sorted(interfaces)),
        "iptables": run(["iptables", "-t", "nat", "-S"], timeout=10) + run(["iptables", "-S"], timeout=10),
        "mounts": Path("/proc/self/mounts").read_text(),
        "hostname": run(["uname", "--nodename"], timeout=10),
        **{name: Path("/proc/sys", name).read_text() for name in KUBELET_SYSCTLS},
    }


def test_down_leaves_nothing(second: Cluster, tell: Callable[[str], None]) -> None:
    """No process, mount, interface, rule, setting or control group of a cluster survives it."""
    before = footprint()

    second.up(tell)
    running = second.machine.leftovers()
    second.down()

    assert {line.split()[0] for line in running} >= {"process", "interface"}
    assert second.machine.leftovers() == []
    assert footprint() == before


def test_down_leaves_nothing_after_the_booter_was_killed(second: Cluster) -> None:
    """Nothing has to be remembered for the way down: kill -9 in the middle of the way up is harmless."""
    before = footprint()
    command = [sys.executable, "-m", "cluster", "up", "--number", str(second.layout.number)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}

    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as booter:
        assert booter.stderr is not None
        step = next(line for line in booter.stderr if "starting the node" in line)
        booter.send_signal(signal.SIGKILL)
    half_way = second.machine.leftovers()
    second.down()

    assert step
    assert half_way
    assert second.machine.leftovers() == []
    assert footprint() == before


def test_a_boot_replaces_what_a_killed_one_left(second: Cluster, tell: Callable[[str], None]) -> None:
    """`up` after a crash needs nobody to clean up first."""
    second.up(tell)
    (second.layout.home / "ready").unlink()
    first = second.machine.first_pid

    second.up(tell)

    assert second.is_ready
    assert second.machine.first_pid != first


def test_an_interrupted_boot_leaves_nothing(second: Cluster) -> None:
    """Whoever stops a boot, or sees one fail, has nothing to clean up."""

    def interrupt(step: str) -> None:
        if "node" in step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        second.up(interrupt)

    assert second.machine.leftovers() == []
