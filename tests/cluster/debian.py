"""Packages of the Debian distribution: container runtime, network plugins and image tools; address of its archive."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.shell import ClusterFailed, locked, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

LOCK = Path(tempfile.gettempdir()) / "ptjob-debian-packages.lock"

NODE_PACKAGES = (
    "bash-static",
    "busybox-static",
    "conntrack",
    "containerd",
    "containernetworking-plugins",
    "iproute2",
    "iptables",
    "openssl",
    "runc",
    "util-linux",
)
IMAGE_PACKAGES = ("buildah", "ca-certificates", "debian-archive-keyring", "mmdebstrap")


def missing(packages: Iterable[str]) -> list[str]:
    """Return the packages that are not installed."""
    query = ["dpkg-query", "--show", "--showformat", "${Package} ${db:Status-Status}\n", "*"]
    lines = run(query, timeout=60).splitlines()
    there = {name for name, _, status in (line.partition(" ") for line in lines) if status == "installed"}
    return [name for name in packages if name not in there]


def unmet() -> str:
    """Return the reason why the packages cannot be installed on this machine; "" if they can."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-query") is None:
        return "a Debian machine is needed (apt-get is not there)"
    return ""


def unmet_program(name: str) -> str:
    """Return the reason why a program is missing and its package, of the same name, cannot be installed; or ""."""
    if shutil.which(name):
        return ""
    if os.geteuid() != 0:
        return f"{name} is missing: install the package {name}, or run this as root"
    return unmet()


def install(packages: Iterable[str], tell: Callable[[str], None]) -> None:
    """Install missing packages without prompts; upgrade nothing.

    Raises:
        ClusterFailed: apt-get failed, or the user is not root.
    """
    names = missing(packages)
    if not names:
        return
    if os.geteuid() != 0:
        raise ClusterFailed(f"Debian packages are missing: {' '.join(names)}. Install them, or run this as root.")
    with alone():
        if names := missing(packages):  # another process may have installed them meanwhile
            _install(names, tell)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Let one process at a time install packages or check them: a program exists before its package is configured.

    Without root there is no lock, because only root can install.
    """
    with locked(LOCK) if os.geteuid() == 0 else contextlib.nullcontext():
        yield


def _install(names: Iterable[str], tell: Callable[[str], None]) -> None:
    tell(f"installing Debian packages: {' '.join(names)}")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run(["apt-get", "update", "--quiet"], env=env, timeout=300)
    run(["apt-get", "install", "--quiet", "--yes", "--no-install-recommends", *names], env=env, timeout=900)


def archive() -> str:
    """Return the address of the Debian archive that this machine uses; "" if it uses none."""
    targets = run(
        ["apt-get", "indextargets", "--format", "$(ORIGIN) $(LABEL) $(REPO_URI)", "Created-By: Packages"], timeout=60
    )
    for line in targets.splitlines():
        origin, label, address = line.split(" ", 2)
        if origin == label == "Debian":
            return address
    return ""
