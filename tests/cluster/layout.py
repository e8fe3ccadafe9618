"""Folders and addresses of one cluster; it has no others.

A cluster runs in its own namespaces (see machine.py). Its folders have fixed paths there (`HOME`, `BINARIES`), so that
no configuration depends on the location of this machine's cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

HOME = Path("/run/ptjob/home")
BINARIES = Path("/run/ptjob/bin")
NODE = "node"
API_PORT = 6443
SERVICE_NETWORK = "10.96.0.0/16"
API_SERVICE = "10.96.0.1"
POD_NETWORK = "10.244.0.0/24"
LINK_NETWORK = "10.244.255"
DOMAIN = "cluster.local"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """One cluster of this machine.

    Attributes:
        cache: folder that all clusters share, for everything that is expensive to build: binaries, images.
        number: the cluster's number, at most 60; clusters with different numbers run in parallel. `make cluster`: 0.
    """

    cache: Path
    number: int = 0

    @classmethod
    def of(cls, environ: Mapping[str, str], *, number: int = 0) -> Layout:
        """Return the layout under the user's cache folder."""
        user_cache = environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return cls(cache=Path(user_cache).absolute() / "ptjob-provider", number=number)

    @property
    def home(self) -> Path:
        """Return the cluster's own folder, mounted as `HOME` inside. Only its image store survives a boot."""
        return self.cache / "clusters" / str(self.number)

    @property
    def binaries(self) -> Path:
        """Return the folder of the Go builds, mounted as `BINARIES` inside."""
        return self.cache / "bin"

    @property
    def images(self) -> Path:
        """Return the folder of root file systems that images are built from."""
        return self.cache / "images"

    @property
    def logs(self) -> Path:
        """Return the folder of the components' logs, and of the kubelet's `pods/`; it stays until the next boot."""
        return self.home / "log"

    @property
    def kubeconfig(self) -> Path:
        """Return the path of the administrator's kubeconfig."""
        return self.home / "admin.kubeconfig"

    @property
    def link(self) -> str:
        """Return the name of the only network interface that the cluster adds to this machine."""
        return f"ptjob{self.number}"

    @property
    def host_address(self) -> str:
        """Return the address of this machine's end of the link."""
        return f"{LINK_NETWORK}.{4 * self.number + 1}"

    @property
    def node_address(self) -> str:
        """Return the address of the cluster's end of the link, which is its only node and its API server."""
        return f"{LINK_NETWORK}.{4 * self.number + 2}"

    @property
    def api_url(self) -> str:
        """Return the URL of the API server, for this machine and for the cluster."""
        return f"https://{self.node_address}:{API_PORT}"

    @property
    def cgroup(self) -> str:
        """Return the name of the control group of all pods, the same in every hierarchy."""
        return f"ptjob-cluster-{self.number}"
