"""Images without a registry: archives in Docker's format made from local files, and the cluster's image store.

Each image has a label with a hash of its sources, so that a later boot does not import it again.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cluster import binaries, components
from cluster.layout import HOME
from cluster.shell import ClusterFailed, run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cluster.binaries import Binaries
    from cluster.machine import Machine

KEY_LABEL = "ptjob-key"
INIT_IMAGE = "docker.io/library/alpine:3.10"
NSLOOKUP = """#!/bin/sh
# busybox's own fails as soon as one search domain does not know the name.
answer=$(/bin/busybox nslookup "$@" 2>/dev/null)
echo "$answer"
echo "$answer" | /bin/busybox grep -q '^Name:'
"""
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, kw_only=True)
class SmallImage:
    """Image of one layer, small enough to be rebuilt whenever it is needed.

    Attributes:
        name: image name with registry and tag, as in a pod.
        files: path in the image → content, as bytes or as a file to copy; every user may execute the files.
        links: path in the image → target of the symbolic link.
        entrypoint: command that runs if the pod has none.
    """

    name: str
    files: Mapping[str, bytes | Path]
    links: Mapping[str, str] = field(default_factory=dict)
    entrypoint: Sequence[str] = ()

    @property
    def key(self) -> str:
        """Return a hash of the content."""
        digest = hashlib.sha256(json.dumps([self.name, sorted(self.links.items()), list(self.entrypoint)]).encode())
        for path, content in sorted(self.files.items()):
            digest.update(path.encode() + b"\0" + hashlib.sha256(_bytes(content)).digest())
        return digest.hexdigest()[:16]

    def save(self, archive: Path) -> None:
        """Write the image as an archive for `ctr images import` and `docker load`."""
        layer = self._layer()
        config = {
            "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {"Entrypoint": list(self.entrypoint), "Env": ["PATH=/usr/bin:/bin"], "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        }
        config_file = json.dumps(config).encode()
        config_name = f"{hashlib.sha256(config_file).hexdigest()}.json"
        index = [{"Config": config_name, "RepoTags": [self.name], "Layers": ["layer.tar"]}]
        with tarfile.open(archive, "w") as out:
            _add(out, config_name, config_file)
            _add(out, "layer.tar", layer)
            _add(out, "manifest.json", json.dumps(index).encode())

    def _layer(self) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as out:
            folder = tarfile.TarInfo("tmp")
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777
            out.addfile(folder)
            for path, content in sorted(self.files.items()):
                _add(out, path.lstrip("/"), _bytes(content))
            for path, target in sorted(self.links.items()):
                link = tarfile.TarInfo(path.lstrip("/"))
                link.type, link.linkname = tarfile.SYMTYPE, target
                out.addfile(link)
        return buffer.getvalue()


class ImageStore:
    """Images that the cluster's pods use without pulling."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def has(self, name: str, key: str) -> bool:
        """Return True if the store has the image with this key."""
        return bool(self._ctr("images", "list", "--quiet", f'name=={name},labels."{KEY_LABEL}"=={key}').strip())

    def ensure(self, image: SmallImage) -> None:
        """Import the image if the store does not have it."""
        if self.has(image.name, image.key):
            return
        archive = self.machine.layout.home / f"{image.key}.tar"
        image.save(archive)
        self.take(archive, image.name, image.key)

    def take(self, archive: Path, name: str, key: str) -> None:
        """Import an archive from the cluster's folder; delete the archive and the images that it replaces."""
        self._ctr("images", "import", str(HOME / archive.name), timeout=600)
        archive.unlink()
        self._ctr("images", "label", name, f"{KEY_LABEL}={key}")
        if not self.has(name, key):
            raise ClusterFailed(f"the archive imported as {name} holds no image of that name")
        self._drop_replaced()

    def drop_containers(self) -> bool:
        """Delete the containers of an earlier boot; return True if there were any."""
        names = self._ctr("containers", "list", "--quiet").split()
        if names:
            self._ctr("containers", "delete", *names)
        return bool(names)

    def _drop_replaced(self) -> None:
        """Delete images that have no name but their own digest, which the runtime would keep forever."""
        rows = [line.split() for line in self._ctr("images", "list").splitlines()[1:]]
        named = {target for name, _, target, *_ in rows if not name.startswith("sha256:")}
        replaced = [name for name, _, target, *_ in rows if target not in named]
        if replaced:
            self._ctr("images", "delete", *replaced)

    def _ctr(self, *words: str, timeout: float = 60) -> str:
        address = components.CONTAINERD_SOCKET
        return self.machine.run(["ctr", "--address", address, "--namespace", "k8s.io", *words], timeout=timeout)


def pause(programs: Binaries) -> SmallImage:
    """Return the image of every pod's sandbox."""
    program = programs.folder(binaries.PAUSE) / "pause"
    return SmallImage(name=components.PAUSE_IMAGE, files={"/pause": program}, entrypoint=["/pause"])


def alpine() -> SmallImage:
    """Return the image of the operator's init containers: busybox, with an `nslookup` that works for their script.

    The shell is bash, because busybox's shell would run its own `nslookup` applet instead of the script.
    """
    files: dict[str, bytes | Path] = {
        "/bin/busybox": Path("/bin/busybox"),
        "/bin/bash": Path("/bin/bash-static"),
        "/bin/nslookup": NSLOOKUP.encode(),
    }
    applets = set(run(["/bin/busybox", "--list"], timeout=10).split()) - {"busybox", "nslookup", "sh"}
    links = {"/bin/sh": "bash", **{f"/bin/{name}": "busybox" for name in applets}}
    return SmallImage(name=INIT_IMAGE, files=files, links=links)


def controller(name: str, program: Path) -> SmallImage:
    """Return a controller's image: its static program as /manager."""
    return SmallImage(name=name, files={"/manager": program}, entrypoint=["/manager"])


def _bytes(content: bytes | Path) -> bytes:
    return content if isinstance(content, bytes) else content.read_bytes()


def _add(out: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o755
    out.addfile(entry, io.BytesIO(content))
