"""Map a pod's volumes, mounts and paths to directories of this machine.

The longest container path wins, and only whole path components match: with `/data` mounted, `/data2` is unchanged. A
path may stand alone, after `=`, in a `a:b` list, or between the quotes and blanks of a shell command.

A claim is the directory `claims/<namespace>/<claim>`, created on first use. No name, sub-path or link leaves it. Secret
volumes are in memory (`/dev/shm`), for the pod's lifetime.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.local.store import make_private

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.local.launch import Stores

_BEFORE = r"(?:(?<=[\s'\"=:;,(\[{<>|&@`])|^)"
_AFTER = r"(?=[\s'\"/:;,)\]}<>|&`]|$)"


@dataclass(frozen=True, kw_only=True)
class Binding:
    """Mapping of one path of the container's file system to this machine."""

    container_path: str
    host_path: str


class PathMap:
    """Translates texts of one container; the later of two bindings for one path counts, as a mount hides an image."""

    def __init__(self, bindings: Iterable[Binding]) -> None:
        self._hosts = {normal(binding.container_path): binding.host_path for binding in bindings}
        longest_first = sorted(self._hosts, key=len, reverse=True)
        choices = "|".join(re.escape(path) for path in longest_first)
        self._pattern = re.compile(f"{_BEFORE}({choices}){_AFTER}") if choices else None

    def text(self, text: str) -> str:
        """Return the text with every bound container path replaced."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda match: self._hosts[match[1]], text)

    def path(self, path: str) -> str | None:
        """Return the local path of one absolute path; None if it is on no binding."""
        pure = PurePosixPath(normal(path))
        for ancestor in (pure, *pure.parents):
            host = self._hosts.get(str(ancestor))
            if host is not None:
                return str(PurePosixPath(host) / pure.relative_to(ancestor))
        return None


def normal(path: str) -> str:
    """Return the path without doubled and trailing slashes."""
    return str(PurePosixPath("/" + path.lstrip("/")))


MEMORY = Path("/dev/shm")  # noqa: S108 - memory on purpose; each pod gets a private directory in it

_CLAIM = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_MAX_NAME = 253


@dataclass(frozen=True, kw_only=True)
class VolumePlaces:
    """Directories of one pod's volumes.

    Attributes:
        claims: the directory of its namespace's claims.
        pod: the pod's own directory.
        memory: its private directory in memory; empty if it has no secret volume.
    """

    claims: Path
    pod: Path
    memory: Path | None = None


def claim_directory(claims: Path, claim: str, *, field: str = "claim") -> Path:
    """Return the directory of a claim, existing or not.

    Raises:
        InvalidSpec: the claim's name is invalid.
    """
    if len(claim) > _MAX_NAME or not _CLAIM.fullmatch(claim) or ".." in claim:
        raise InvalidSpec.of(field, claim, "allowed: lower-case letters, digits, '-' and '.', at most 253 characters")
    return claims / claim


def inside(directory: Path, sub_path: str, *, field: str) -> Path:
    """Return the path below the directory.

    Raises:
        InvalidSpec: it leaves the directory, by `..` or through a link.
    """
    pure = PurePosixPath(sub_path)
    if pure.is_absolute() or ".." in pure.parts:
        raise InvalidSpec.of(field, sub_path, "allowed: a relative path without '..'")
    path = directory / pure
    if not path.resolve().is_relative_to(directory.resolve()):
        raise InvalidSpec.of(field, sub_path, "a symbolic link on this path leads out of the volume")
    return path


def volumes_of(spec: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return a pod's volumes by name."""
    return {volume["name"]: volume for volume in spec.get("volumes") or ()}


def volume_directory(volume: Mapping[str, Any], places: VolumePlaces) -> Path:
    """Return the directory of a volume, existing or not."""
    claim = volume.get("persistentVolumeClaim")
    if claim:
        return claim_directory(places.claims, claim["claimName"], field=f"volumes[{volume['name']}]")
    if "secret" in volume and places.memory is not None:
        return places.memory / str(volume["name"])
    return places.pod / "volumes" / str(volume["name"])


def bindings(spec: Mapping[str, Any], container: Mapping[str, Any], places: VolumePlaces) -> list[Binding]:
    """Return the local paths of the container's mounts.

    Raises:
        InvalidSpec: a sub-path leaves its volume.
    """
    volumes = volumes_of(spec)
    found = []
    for mount in container.get("volumeMounts") or ():
        volume = volumes[mount["name"]]
        host = volume_directory(volume, places)
        if mount.get("subPath"):
            host = inside(host, mount["subPath"], field=f"volumeMounts[{mount['mountPath']}].subPath")
        found.append(Binding(container_path=normal(mount["mountPath"]), host_path=str(host)))
    return found


def read_only_mounts(spec: Mapping[str, Any]) -> list[str]:
    """Return the mount paths that are read-only on a cluster, by their mount or its claim."""
    claims = {name: volume.get("persistentVolumeClaim") or {} for name, volume in volumes_of(spec).items()}
    containers = [*(spec.get("initContainers") or ()), *spec["containers"]]
    mounts = [mount for container in containers for mount in container.get("volumeMounts") or ()]
    return [mount["mountPath"] for mount in mounts if mount.get("readOnly") or claims[mount["name"]].get("readOnly")]


def prepare(pod: Manifest, places: VolumePlaces, stores: Stores) -> None:
    """Create the pod's volumes: unused claims, empty directories, files of config maps and secrets."""
    for volume in volumes_of(pod["spec"]).values():
        directory = volume_directory(volume, places)
        make_private(directory)
        for kind in ("configMap", "secret"):
            if kind in volume:
                _write_files(directory, volume[kind], stores.values(volume, f"volumes[{volume['name']}]"))


def memory_of(pod_uid: str) -> Path:
    """Return the pod's directory in memory, existing or not."""
    return MEMORY / f"ptjob-{pod_uid}"


def needs_memory(spec: Mapping[str, Any]) -> bool:
    """Return whether the pod has a volume that must not touch the disk."""
    return any("secret" in volume for volume in volumes_of(spec).values())


def _write_files(directory: Path, source: Mapping[str, Any], values: Mapping[str, str]) -> None:
    items = source.get("items")
    chosen = {item["path"]: values[item["key"]] for item in items if item["key"] in values} if items else values
    for name, value in chosen.items():
        file = inside(directory, name, field="items")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(value, encoding="utf-8")
