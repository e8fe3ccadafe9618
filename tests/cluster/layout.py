"""Where everything of one cluster is, and which addresses it has; nothing else lies anywhere else.

A cluster runs in namespaces of its own (see machine.py). There its folders appear under fixed paths (`HOME`,
`BINARIES`), so that no configuration depends on where the cache of this machine is.
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
        cache: what is expensive to make and shared by all clusters: binaries, images.
        number: which cluster; two with different numbers run side by side. 0 is the one of `make cluster`, at most 60.
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
        """This cluster's own folder, seen as `HOME` inside. Only its image store survives a boot."""
        return self.cache / "clusters" / str(self.number)

    @property
    def binaries(self) -> Path:
        """The Go builds, seen as `BINARIES` inside."""
        return self.cache / "bin"

    @property
    def images(self) -> Path:
        """Finished root file systems that images are made from."""
        return self.cache / "images"

    @property
    def logs(self) -> Path:
        """What the components wrote, and `pods/` as the kubelet keeps it; stays until the next boot."""
        return self.home / "log"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's access, for everybody who may read the file."""
        return self.home / "admin.kubeconfig"

    @property
    def link(self) -> str:
        """The one network interface that the cluster adds to this machine."""
        return f"ptjob{self.number}"

    @property
    def host_address(self) -> str:
        """This machine's end of the link."""
        return f"{LINK_NETWORK}.{4 * self.number + 1}"

    @property
    def node_address(self) -> str:
        """The cluster's end of the link: its only node and its API server."""
        return f"{LINK_NETWORK}.{4 * self.number + 2}"

    @property
    def api_url(self) -> str:
        """Where the API server answers, for this machine and for the cluster."""
        return f"https://{self.node_address}:{API_PORT}"

    @property
    def cgroup(self) -> str:
        """The control group that holds all pods, of the same name in every hierarchy."""
        return f"ptjob-cluster-{self.number}"
