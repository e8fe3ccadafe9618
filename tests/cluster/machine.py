"""The cluster's machine: namespaces of this machine, held by one process, with one network link.

Every process of the cluster is a descendant of that first process, in its process, mount and network namespaces. When
the first process is killed, the kernel ends all processes below it, including pods, and removes mounts, bridges,
iptables rules and the link. So nothing is left behind, even if the program that started the cluster died half-way. Only
the control groups are removed explicitly. There is no state file: the first process is found by its command line.

Nothing inside can reach another machine: there is no route, and pods cannot even reach this machine.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.layout import BINARIES, HOME, NODE, SERVICE_NETWORK
from cluster.shell import ClusterFailed, bare_environment, run, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cluster.layout import Layout

NAMESPACES = ("--mount", "--net", "--pid", "--uts", "--ipc")
CGROUPS = Path("/sys/fs/cgroup")
# The kubelet sets these for the whole machine and never resets them. In the cluster's machine they are plain files that
# already have the values that the kubelet wants.
KUBELET_SYSCTLS = {
    "kernel/keys/root_maxbytes": "25000000",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
}


@dataclass(frozen=True)
class Process:
    """A process, with its id on this machine."""

    pid: int
    argv: tuple[str, ...]


class Machine:
    """Namespaces of one cluster. Several objects may stand for the same one, because the kernel has all the state."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    @property
    def first_pid(self) -> int | None:
        """Return the id of the process that holds the namespaces; None if there is none."""
        for process in all_processes():
            if _is_first(process, str(self.layout.home)):
                return process.pid
        return None

    def start(self, pause: Path) -> None:
        """Create the namespaces, held by `pause`, and the cluster's folders, link and control groups.

        Raises:
            ClusterFailed: this machine does not allow it; the message has the reason.
        """
        for folder in ("log", "tmp", "sysctl"):
            (self.layout.home / folder).mkdir(parents=True, exist_ok=True)
        (self.layout.home / "tmp").chmod(0o1777)
        self.layout.binaries.mkdir(parents=True, exist_ok=True)
        log = self.layout.logs / "machine.log"
        holder = ["unshare", *NAMESPACES, "--fork", "--mount-proc", str(pause), str(self.layout.home)]
        started = ["sh", "-c", 'exec >"$0" 2>&1 </dev/null; exec setsid --fork "$@"', str(log), *holder]
        run(started, env=bare_environment(self.layout.home), timeout=60)
        try:
            first = wait_until("the machine's first process", lambda: self.first_pid, timeout=60)
        except ClusterFailed as error:
            raise ClusterFailed(f"{error}: {log.read_text().strip()}") from error
        self._make_cgroups()
        self._mount()
        self._link(first)

    def run(self, argv: Sequence[str], *, timeout: float = 60, stdin: str = "") -> str:
        """Run a program inside to its end and return its output."""
        env = bare_environment(HOME)
        return run([*self._enter(), *argv], env=env, timeout=timeout, stdin=stdin)

    def spawn(self, argv: Sequence[str], *, log: str) -> None:
        """Start a program inside that outlives this process; append its output to a file in the log folder."""
        script = 'log=$1; shift; setsid "$@" >>"$log" 2>&1 </dev/null &'
        words = [*self._enter(), "sh", "-c", script, "sh", str(HOME / "log" / log), *argv]
        run(words, env=bare_environment(HOME), timeout=120)

    def processes(self) -> list[Process]:
        """Return all processes inside, including the first one."""
        first = self.first_pid
        if first is None:
            return []
        mine = _namespace(first)
        return [process for process in all_processes() if _namespace(process.pid) == mine]

    def find(self, program: str) -> int | None:
        """Return the id of the process that was started with this program path; None if there is none."""
        return next((process.pid for process in self.processes() if process.argv[0] == program), None)

    def destroy(self) -> None:
        """Kill everything inside at once; no process, mount, link, rule or control group remains.

        Raises:
            ClusterFailed: something remains, which the message names; or a cluster in another cache folder has this
                number.
        """
        first = self.first_pid
        if first is None and (other := self._home_of_another_cache()):
            raise ClusterFailed(
                f"the cluster in {other} has the same addresses; end it first (make cluster-down there)"
            )
        if first is not None:
            os.kill(first, signal.SIGKILL)
            wait_until("the cluster's processes to end", lambda: not _is_alive(first), timeout=180)
        with contextlib.suppress(ClusterFailed):
            run(["ip", "link", "delete", self.layout.link], timeout=60)
        wait_until("the cluster's control groups to empty", self._remove_cgroups, timeout=120)
        if left := self.leftovers():
            raise ClusterFailed("the cluster left behind: " + ", ".join(left))

    def _home_of_another_cache(self) -> str | None:
        number = self.layout.home.name
        homes = (process.argv[-1] for process in all_processes() if _is_first(process, process.argv[-1]))
        return next((home for home in homes if Path(home).name == number), None)

    def leftovers(self) -> list[str]:
        """Return descriptions of everything that exists of the cluster outside its folder."""
        processes = [f"process {process.pid} ({process.argv[0]})" for process in self.processes()]
        mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        own = [f"mount {path}" for path in mounts if Path(path).is_relative_to(self.layout.home)]
        link = Path("/sys/class/net") / self.layout.link
        return [*processes, *own, *([f"interface {link.name}"] if link.exists() else []), *map(str, self._cgroups())]

    def _enter(self) -> list[str]:
        first = self.first_pid
        if first is None:
            raise ClusterFailed("the cluster is not up")
        return ["nsenter", "--target", str(first), *NAMESPACES, f"--wdns={HOME}"]

    def _mount(self) -> None:
        outside = {self.layout.home: HOME, self.layout.binaries: BINARIES}
        inside = {HOME / "sysctl" / name.replace("/", "."): f"/proc/sys/{name}" for name in KUBELET_SYSCTLS}
        for file, value in zip(inside, KUBELET_SYSCTLS.values(), strict=True):
            (self.layout.home / "sysctl" / file.name).write_text(f"{value}\n")
        # /tmp comes last, because the cluster's folder may be below this machine's /tmp.
        binds = {**outside, **inside, HOME / "log": "/var/log", HOME / "tmp": "/tmp"}  # noqa: S108
        self._script(
            "mount -t tmpfs tmpfs /run",
            f"mkdir -p {HOME} {BINARIES} /run/lock",
            *(f"mount --bind {shlex.quote(str(source))} {target}" for source, target in binds.items()),
        )

    def _link(self, first: int) -> None:
        link, host, node = self.layout.link, self.layout.host_address, self.layout.node_address
        run(["ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(first)], timeout=60)
        run(["ip", "address", "add", f"{host}/30", "dev", link], timeout=60)
        run(["ip", "link", "set", link, "up"], timeout=60)
        self._script(
            f"hostname {NODE}",
            "ip link set lo up",
            f"ip address add {node}/30 dev eth0",
            "ip link set eth0 up",
            # A service's address needs a route before it is translated. There is no other route out of the machine.
            f"ip route add {SERVICE_NETWORK} dev eth0 src {node}",
            "iptables --append FORWARD --out-interface eth0 --jump REJECT",
            "echo 1 > /proc/sys/net/ipv4/ip_forward",
            "modprobe --quiet br_netfilter || true",
            "echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables",
        )

    def _script(self, *lines: str) -> None:
        first = self.first_pid
        # Not self.run: its working directory exists only after the first script.
        run(
            ["nsenter", "--target", str(first), *NAMESPACES, "sh", "-e"],
            stdin="\n".join(lines),
            env=bare_environment(Path("/")),
            timeout=120,
        )

    def _make_cgroups(self) -> None:
        for hierarchy in _hierarchies():
            group = hierarchy / self.layout.cgroup
            group.mkdir(exist_ok=True)
            for parent in (hierarchy, group):
                _delegate(parent)

    def _cgroups(self) -> list[Path]:
        groups = [hierarchy / self.layout.cgroup for hierarchy in _hierarchies()]
        return [group for group in groups if group.exists()]

    def _remove_cgroups(self) -> bool:
        for group in self._cgroups():
            for folder, _, _ in os.walk(group, topdown=False):
                with contextlib.suppress(OSError):
                    Path(folder).rmdir()
        return not self._cgroups()


def all_processes() -> Iterator[Process]:
    """Yield all processes of this machine, except those that end meanwhile."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and (words := (entry / "cmdline").read_bytes()):
                argv = words.decode(errors="replace").rstrip("\0").split("\0")
                yield Process(int(entry.name), tuple(argv))


def _is_first(process: Process, home: str) -> bool:
    if len(process.argv) != 2 or Path(process.argv[0]).name != "pause" or process.argv[1] != home:
        return False
    with contextlib.suppress(OSError):
        status = Path(f"/proc/{process.pid}/status").read_text()
        numbers = next(line.split() for line in status.splitlines() if line.startswith("NSpid:"))
        return len(numbers) > 2 and numbers[-1] == "1"
    return False


def _namespace(pid: int) -> str:
    with contextlib.suppress(OSError):
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    return ""


def _is_alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def _hierarchies() -> list[Path]:
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    folders = [folder for folder in CGROUPS.iterdir() if folder.is_dir() and not folder.is_symlink()]
    return [folder for folder in folders if (folder / "cgroup.procs").exists()]


def _delegate(group: Path) -> None:
    """Enable a version 2 group's controllers for its children; version 1 has no such setting."""
    control = group / "cgroup.subtree_control"
    if control.exists() and group.is_relative_to(CGROUPS) and (CGROUPS / "cgroup.controllers").exists():
        control.write_text(" ".join(f"+{name}" for name in (group / "cgroup.controllers").read_text().split()))
