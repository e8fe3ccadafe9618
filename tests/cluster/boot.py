"""Start and stop the test cluster."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import http.client
import json
import os
import shutil
import signal
import ssl
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cluster import binaries, components, debian, images, operators, pki
from cluster.binaries import Binaries
from cluster.images import ImageStore
from cluster.kubectl import Kubectl
from cluster.layout import API_PORT, NODE
from cluster.machine import Machine
from cluster.shell import ClusterFailed, last_lines, locked, wait_until, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cluster.components import Component
    from cluster.layout import Layout

STORE = "containerd"
HEALTH = {
    "coredns": "http://127.0.0.1:8181/ready",
    "etcd": "http://127.0.0.1:2379/health",
    "kube-controller-manager": "https://127.0.0.1:10257/healthz",
    "kube-proxy": "http://127.0.0.1:10256/healthz",
    "kube-scheduler": "https://127.0.0.1:10259/healthz",
    "kubelet": "http://127.0.0.1:10248/healthz",
}
FETCH = ("/bin/busybox", "wget", "-q", "-O", "/dev/null", "--no-check-certificate")


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """One cluster, running or not. The object has no state: the machine and the folder have it.

    Attributes:
        layout: folders and addresses.
        programs: programs of its components and operators.
        operator: the cluster has the training operator.
    """

    layout: Layout
    programs: Binaries
    operator: bool = True

    @classmethod
    def of(cls, layout: Layout, *, operator: bool = True) -> Cluster:
        """Return the cluster of a layout; start nothing."""
        return cls(layout=layout, programs=Binaries(layout.binaries), operator=operator)

    @property
    def machine(self) -> Machine:
        """Return the machine that the cluster runs on."""
        return Machine(self.layout)

    @property
    def images(self) -> ImageStore:
        """Return the store of images that its pods can run."""
        return ImageStore(self.machine)

    @property
    def kubectl(self) -> Kubectl:
        """Return the administrator's kubectl."""
        return self.kubectl_as(self.layout.kubeconfig)

    @property
    def is_ready(self) -> bool:
        """Return True if this version of the code booted it completely and its machine still runs."""
        marker = self.layout.home / "ready"
        with contextlib.suppress(FileNotFoundError):
            return marker.read_text() == self._fingerprint() and self.machine.first_pid is not None
        return False

    def kubectl_as(self, kubeconfig: Path) -> Kubectl:
        """Return the kubectl of another user."""
        return Kubectl(program=self.programs.folder(binaries.KUBERNETES) / "kubectl", kubeconfig=kubeconfig)

    def components(self) -> dict[str, Component]:
        """Return all components by name."""
        programs, layout = self.programs, self.layout
        found = (
            components.etcd(programs),
            components.api_server(programs, layout),
            components.containerd(),
            components.controller_manager(programs),
            components.scheduler(programs),
            components.kubelet(programs, layout),
            components.proxy(programs),
            components.coredns(programs, layout),
        )
        return {component.name: component for component in found}

    def pid(self, name: str) -> int:
        """Return the process id of a component.

        Raises:
            ClusterFailed: the component does not run; the message has the end of its log.
        """
        found = self.machine.find(self.components()[name].program)
        if found is None:
            raise ClusterFailed(f"{name} does not run:\n{self.log(name)}")
        return found

    def kill(self, name: str) -> None:
        """Kill a component as a crash would; its pods and files stay."""
        pid = self.pid(name)
        os.kill(pid, signal.SIGKILL)
        wait_until(f"{name} to end", lambda: not Path(f"/proc/{pid}").exists(), timeout=60)

    def start(self, *names: str) -> None:
        """Start components that are not running."""
        for name in names:
            self._spawn(self.components()[name])

    def restart(self, name: str) -> None:
        """Kill a component as a crash would, start it again, and wait until it responds."""
        self.kill(name)
        self.start(name)
        self.wait_for(name)

    def wait_for(self, name: str) -> None:
        """Return once a started component responds.

        Raises:
            ClusterFailed: it ended or did not respond in time; the message has the end of its log.
        """
        self._wait(name, lambda: self._answers(name), alive=(name,))

    def log(self, name: str) -> str:
        """Return the last lines of a component's log."""
        path = self.layout.logs / f"{name}.log"
        return last_lines(path.read_text(errors="replace")) if path.exists() else ""

    def volume(self, claim: str, *, namespace: str = "default") -> Path:
        """Return the folder on this machine behind a claim's volume, once the claim is bound; its mode is 0750."""

        def bound() -> str | None:
            spec: dict[str, str] = self.kubectl.get("persistentvolumeclaim", claim, namespace=namespace)["spec"]
            return spec.get("volumeName")

        name = wait_until(f"the claim {namespace}/{claim} to be bound", bound, timeout=120)
        inside = Path(self.kubectl.get("persistentvolume", name)["spec"]["hostPath"]["path"])
        return self.layout.home / "tmp" / inside.relative_to("/tmp")  # noqa: S108 - the cluster machine's own /tmp

    def prepare(self, tell: Callable[[str], None]) -> None:
        """Install and build what is missing; a boot then takes seconds.

        Raises:
            ClusterFailed: a package or a program could not be installed or built.
        """
        debian.install(debian.NODE_PACKAGES, tell)
        self.programs.build(tell)

    def up(self, tell: Callable[[str], None]) -> None:
        """Make the cluster ready: use a ready one as it is, otherwise boot a new one with an empty etcd.

        Raises:
            ClusterFailed: a component failed or was not ready in time; the message has the end of its log.
        """
        with self._locked():
            self.prepare(tell)
            if self.is_ready:
                return
            self.machine.destroy()
            try:
                self._boot(tell)
            except BaseException:
                self.machine.destroy()
                raise
            write(self.layout.home / "ready", self._fingerprint())

    def keep(self) -> None:
        """Let the cluster stay up after a test run that used it."""
        write(self.layout.home / "kept", "")

    @contextlib.contextmanager
    def borrowed(self, tell: Callable[[str], None]) -> Iterator[Cluster]:
        """Make the cluster ready; on exit stop it, unless it is kept or another process uses it too."""
        path = self.layout.cache / f"cluster-{self.layout.number}.users"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as users:
            fcntl.flock(users, fcntl.LOCK_SH)
            self.up(tell)
            try:
                yield self
            finally:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if not (self.layout.home / "kept").exists():
                        self.down()

    def down(self) -> None:
        """Stop the cluster; only its folder remains, with the logs and the image store.

        Raises:
            ClusterFailed: something else remains; the message names it.
        """
        with self._locked():
            (self.layout.home / "ready").unlink(missing_ok=True)
            self.machine.destroy()

    def _boot(self, tell: Callable[[str], None]) -> None:
        tell("starting the control plane")
        self._clean()
        pki.make_all(self.layout)
        self.machine.start(self.programs.folder(binaries.PAUSE) / "pause")
        self.start("etcd", "kube-apiserver", "containerd")
        with ThreadPoolExecutor(1) as pool:
            imported = pool.submit(self._import_images)
            self._wait("the API server", self._api_answers, alive=("etcd", "kube-apiserver"))
            tell("starting the node")
            rest = ("kube-controller-manager", "kube-scheduler", "kube-proxy", "coredns")
            self.start(*rest)
            operators.storage(self.kubectl)
            imported.result()
        self.start("kubelet")
        if self.operator:
            operators.training_operator(self)
        self._wait("the node", self._node_is_ready, alive=(*rest, "kubelet"))
        if self.operator:
            tell("starting the training operator")
            operators.wait_for_training_operator(self.kubectl)

    def _clean(self) -> None:
        """Delete all of the folder except the image store."""
        self.layout.home.mkdir(parents=True, exist_ok=True)
        for entry in self.layout.home.iterdir():
            if entry.is_dir() and entry.name != STORE:
                shutil.rmtree(entry)
            elif not entry.is_dir():
                entry.unlink()

    def _spawn(self, component: Component) -> None:
        for name, text in component.files.items():
            write(self.layout.home / name, text)
        self.machine.spawn(component.argv, log=f"{component.name}.log")
        wait_until(f"{component.name} to start", lambda: self.machine.find(component.program), timeout=60)

    def _import_images(self) -> None:
        self._wait("containerd", self._containerd_answers, alive=("containerd",))
        if self.images.drop_containers():
            # containerd has already read the containers and would still report them to the kubelet.
            self.kill("containerd")
            self.start("containerd")
            self._wait("containerd", self._containerd_answers, alive=("containerd",))
        for image in (images.pause(self.programs), images.alpine()):
            self.images.ensure(image)

    def _wait(self, what: str, check: Callable[[], object], *, alive: Sequence[str], timeout: float = 240) -> None:
        def check_alive() -> None:
            running = {process.argv[0] for process in self.machine.processes()}
            for name in alive:
                if self.components()[name].program not in running:
                    raise ClusterFailed(f"{name} does not run:\n{self.log(name)}")

        wait_until(what, check, timeout=timeout, alive=check_alive)

    def _answers(self, name: str) -> bool:
        if name == "kube-apiserver":
            return self._api_answers()
        if name == "containerd":
            return bool(self._containerd_answers())
        self.machine.run([*FETCH, HEALTH[name]])
        return True

    def _containerd_answers(self) -> str:
        return self.machine.run(["ctr", "--address", components.CONTAINERD_SOCKET, "version"])

    def _api_answers(self) -> bool:
        context = ssl.create_default_context(cafile=str(self.layout.home / "pki" / "ca.crt"))
        connection = http.client.HTTPSConnection(self.layout.node_address, API_PORT, timeout=5, context=context)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == http.HTTPStatus.OK
        except OSError:
            return False
        finally:
            connection.close()

    def _node_is_ready(self) -> bool:
        self.kubectl.get("serviceaccount", "default")
        for name in ("coredns", "kube-proxy"):
            self._answers(name)
        conditions = self.kubectl.get("node", NODE)["status"]["conditions"]
        return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)

    def _fingerprint(self) -> str:
        texts = {name: [component.argv, dict(component.files)] for name, component in self.components().items()}
        parts = [self.operator, self.programs.folder(binaries.TRAINING_OPERATOR).name, texts]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def _locked(self) -> contextlib.AbstractContextManager[None]:
        """Let one process at a time start or stop this cluster."""
        return locked(self.layout.cache / f"cluster-{self.layout.number}.lock")


def unmet() -> str:
    """Return one line with the reason why this machine cannot run a cluster; "" if it can."""
    return not_root() or debian.unmet() or binaries.go_unmet()


def not_root() -> str:
    """Return the reason why this user can neither start nor stop a cluster; "" if allowed."""
    return "" if os.geteuid() == 0 else "a cluster needs root (namespaces, mounts)"
