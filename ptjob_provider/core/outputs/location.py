"""Locate a finished job's output for the next program: a directory on this machine, or a claim that a pod mounts.

The functions only handle addresses and paths; they use no back-end.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ptjob_provider.core.errors import InvalidSpec, UnsupportedByBackend
from ptjob_provider.core.outputs.contract import PvcAddress

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

MOUNT_ROOT = "/mnt/outputs"
"""Directory in a pod in which its input claims are mounted, each under its volume's name."""

_MAX_VOLUME_NAME = 63


@dataclass(frozen=True, kw_only=True)
class MountedOutput:
    """An output mounted into a pod: its whole claim, read-only, and a path below the mount.

    Attributes:
        volume: the volume's name, a DNS label that is unique in the pod.
        claim: the PersistentVolumeClaim, in the pod's own namespace.
        path: inside the claim.
    """

    volume: str
    claim: str
    path: str

    @classmethod
    def of(cls, uri: str, *, volume: str) -> Self:
        """Parse `pvc://claim/path`.

        Raises:
            InvalidSpec: the text is no such address.
        """
        address = PvcAddress.parse(uri, field="uri")
        return cls(volume=volume, claim=address.claim, path=address.path)

    @property
    def mount_path(self) -> str:
        """Return the claim's mount path in the pod."""
        return f"{MOUNT_ROOT}/{self.volume}"

    @property
    def container_path(self) -> str:
        """Return the output's path in the pod."""
        return posixpath.join(self.mount_path, self.path)

    @property
    def short(self) -> str:
        """Return the mount in the short form of a job's field `volumes`."""
        return f"{self.claim}:{self.mount_path}:ro"


def volume_name(*parts: str) -> str:
    """Return a volume name built from parts such as a task id: lower-case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(parts).lower()).strip("-")[:_MAX_VOLUME_NAME].rstrip("-")


def local_path(uri: str, *, claims: Path) -> Path:
    """Return the local path of a `pvc://claim/path`; the caller checks that it exists.

    Args:
        uri: such as `result["model"]["uri"]`.
        claims: the directory of one namespace's claims, each under its name.

    Raises:
        InvalidSpec: the text is no such address, or a symbolic link leads out of the claim.
        UnsupportedByBackend: this machine has no directory for the claim.
    """
    address = PvcAddress.parse(uri, field="uri")
    claim = claims / address.claim
    if not claim.is_dir():
        why = f"{uri}: the claim {address.claim} is no directory on this machine (looked in {claims})"
        advice = "run this where the claim is mounted, or read the file in a job or pod that mounts it"
        raise UnsupportedByBackend.of("uri", f"{why}; {advice}")
    return path_in(claim, uri)


def path_in(claim: Path, uri: str) -> Path:
    """Return the path of a `pvc://claim/path` in the directory of its claim.

    Raises:
        InvalidSpec: the text is no such address, or a symbolic link leads out of the claim.
    """
    path = claim / PvcAddress.parse(uri, field="uri").path
    if not path.resolve().is_relative_to(claim.resolve()):
        raise InvalidSpec.of("uri", uri, f"a link leads out of the claim; allowed: paths inside {claim}")
    return path
