from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cluster import binaries
from cluster.boot import Cluster
from cluster.fixtures import OWN_NUMBER, skip_unless_possible
from cluster.images import INIT_IMAGE
from cluster.layout import Layout
from cluster.machine import KUBELET_SYSCTLS
from cluster.shell import ClusterFailed, run, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NUMBER = 2
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "sleep", "namespace": "default"},
    "spec": {"containers": [{"name": "sleep", "image": INIT_IMAGE, "command": ["sleep", "600"]}]},
}


@pytest.fixture
def second() -> Iterator[Cluster]:
    """Describe a cluster beside those of other tests; whatever a test leaves of it is removed."""
    cluster = Cluster.of(Layout.of(os.environ, number=NUMBER), operator=False)
    skip_unless_possible(cluster)
    yield cluster
    cluster.down()
    shutil.rmtree(cluster.layout.home, ignore_errors=True)


def footprint() -> dict[str, str]:
    """Return what of this machine a cluster could change."""
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
    """Start what `make` starts, for that cluster."""
    command = [sys.executable, "-m", "cluster", word, "--number", str(NUMBER)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    return subprocess.Popen(command, env=environment, text=True, **pipes)


def test_down_leaves_nothing_after_the_booter_was_killed(second: Cluster) -> None:
    """Nothing has to be remembered for the way down: kill -9 in the middle of the way up is harmless."""
    before = footprint()

    with command_line("up", stderr=subprocess.PIPE) as booter:
        assert booter.stderr is not None
        step = next(line for line in booter.stderr if "starting the node" in line)
        booter.send_signal(signal.SIGKILL)
    half_way = second.machine.leftovers()
    second.down()

    assert step
    assert half_way
    assert second.machine.leftovers() == []
    assert footprint() == before


def test_down_leaves_nothing_after_the_first_process_was_killed(second: Cluster, tell: Callable[[str], None]) -> None:
    """What holds the namespaces dies while a pod runs: the kernel ends the rest, and `down` removes what it cannot."""
    before = footprint()
    second.up(tell)
    second.kubectl.apply(POD)
    wait_until(
        "the pod to run", lambda: second.kubectl.get("pod", "sleep")["status"]["phase"] == "Running", timeout=180
    )
    first = second.machine.first_pid
    assert first is not None

    os.kill(first, signal.SIGKILL)
    wait_until("the first process to end", lambda: second.machine.first_pid is None, timeout=30)
    second.down()

    assert second.machine.leftovers() == []
    assert footprint() == before


def test_a_held_cluster_goes_down_when_whoever_held_it_was_killed(second: Cluster) -> None:
    """`make test` holds it through a pipe: the pipe's end comes however its other side ends."""
    before = footprint()
    with command_line("hold", stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        access = holder.stdout.readline()
        held = second.machine.leftovers()
        holder.stdin.close()
        code = holder.wait(timeout=240)

    assert access == f"export KUBECONFIG={second.layout.kubeconfig}\n"
    assert {line.split()[0] for line in held} >= {"process", "interface"}
    assert code == 0
    assert second.machine.leftovers() == []
    assert footprint() == before


def test_an_interrupted_boot_leaves_nothing(second: Cluster) -> None:
    """Whoever stops a boot, or sees one fail, has nothing to clean up."""

    def interrupt(step: str) -> None:
        if "node" in step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        second.up(interrupt)

    assert second.machine.leftovers() == []


def test_the_cluster_of_another_cache_folder_is_left_alone(second: Cluster, tmp_path: Path) -> None:
    """It has the same addresses; taking its interface away would break whatever uses it."""
    second.programs.build(print)
    mine, other = (Cluster.of(Layout(cache=tmp_path / name, number=59)) for name in ("mine", "other"))
    pause = second.programs.folder(binaries.PAUSE) / "pause"
    holder = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", str(pause), str(other.layout.home)]
    with subprocess.Popen(holder) as holding:
        try:
            wait_until("its first process", lambda: other.machine.first_pid, timeout=60)
            with pytest.raises(ClusterFailed, match=f"the cluster in {other.layout.home} has the same addresses"):
                mine.down()
            assert other.machine.first_pid
        finally:
            holding.kill()
