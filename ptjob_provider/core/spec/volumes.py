"""Volumes of a job: claims in the short form `claim:/path`, and volumes in the wire format."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.spec import literals
from ptjob_provider.core.spec.settings import parse_into, setting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_CLAIM = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SHORT = re.compile(r"(?P<claim>[^/:]+)(?:/(?P<sub_path>[^:]+))?:(?P<mount_path>/[^:]*)(?::(?P<mode>ro|rw))?")
_MAX_NAME = 253


def claim_name(field: str, value: Any) -> str:
    """Return the name of a claim.

    Raises:
        InvalidSpec: it is invalid.
    """
    name = literals.text(field, value)
    if len(name) > _MAX_NAME or not _CLAIM.fullmatch(name):
        raise InvalidSpec.of(field, value, "the name of a PersistentVolumeClaim (lower-case letters, digits, '-', '.')")
    return name


def _mount_path(field: str, value: Any) -> str:
    path = absolute_path(field, value)
    if path == "/" or ":" in path:
        raise InvalidSpec.of(field, value, "an absolute path other than '/', without ':'")
    return path


def _sub_path(field: str, value: Any) -> str:
    path = literals.text(field, value)
    if path.startswith("/") or ".." in path.split("/"):
        raise InvalidSpec.of(field, value, "a path inside the claim, without a leading '/' and without '..'")
    return posixpath.normpath(path)


@dataclass(frozen=True, kw_only=True)
class VolumeMount:
    """A claim, or a folder of it (`sub_path`), mounted into the container."""

    claim: str = setting(claim_name)
    mount_path: str = setting(_mount_path)
    sub_path: str | None = setting(_sub_path)
    read_only: bool | None = setting(literals.boolean)

    @classmethod
    def parse(cls, field: str, value: Any) -> VolumeMount:
        """Parse `claim:/path`, `claim:/path:ro`, `claim/sub/path:/path` or a map with the same parts.

        Raises:
            InvalidSpec: it has neither form, or a part is invalid.
        """
        if isinstance(value, str):
            value = _parts(field, value)
        mount = parse_into(cls, literals.mapping(field, value), prefix=f"{field}.")
        for required in ("claim", "mount_path"):
            if getattr(mount, required) is None:
                raise InvalidSpec.of(f"{field}.{required}", None, "required")
        return mount


@dataclass(frozen=True, kw_only=True)
class PodVolume:
    """A volume of any kind in the wire format, mounted by `volume_mounts`."""

    name: str
    source: Mapping[str, Any]

    def to_wire(self) -> dict[str, Any]:
        """Return the volume as core/v1 Volume."""
        return {"name": self.name, **self.source}


def volumes(field: str, value: Any) -> tuple[VolumeMount | PodVolume, ...]:
    """Parse a list of claims with their paths, and of core/v1 Volume objects.

    Raises:
        InvalidSpec: one is invalid, or two share a path or a name.
    """
    items = literals.sequence(field, value)
    found = tuple(volume(f"{field}[{index}]", item) for index, item in enumerate(items))
    paths = [each.mount_path if isinstance(each, VolumeMount) else None for each in found]
    _check_distinct(field, "mount_path", paths, "one mount per path")
    names = [each.name if isinstance(each, PodVolume) else None for each in found]
    _check_distinct(field, "name", names, "one volume per name")
    return found


def volume_mounts(field: str, value: Any) -> tuple[Mapping[str, Any], ...]:
    """Parse a list of core/v1 VolumeMount objects.

    Raises:
        InvalidSpec: one lacks a name or a path, or two share a path.
    """
    found = tuple(volume_mount(f"{field}[{index}]", item) for index, item in enumerate(literals.sequence(field, value)))
    _check_distinct(field, "mountPath", [each["mountPath"] for each in found], "one mount per path")
    return found


def volume(field: str, value: Any) -> VolumeMount | PodVolume:
    """Parse a claim with its path, or a core/v1 Volume object."""
    if isinstance(value, str) or "name" not in literals.mapping(field, value):
        return VolumeMount.parse(field, value)
    source = {key: item for key, item in value.items() if key != "name"}
    return PodVolume(name=literals.text(f"{field}.name", value["name"]), source=source)


def volume_mount(field: str, value: Any) -> Mapping[str, Any]:
    """Parse a core/v1 VolumeMount object."""
    mount = literals.mapping(field, value)
    return {
        **mount,
        "name": literals.text(f"{field}.name", mount.get("name")),
        "mountPath": _mount_path(f"{field}.mountPath", mount.get("mountPath")),
    }


def absolute_path(field: str, value: Any) -> str:
    """Parse an absolute path of the container, without `..`; a trailing slash is dropped."""
    path = literals.text(field, value)
    if not path.startswith("/") or ".." in path.split("/"):
        raise InvalidSpec.of(field, value, "an absolute path without '..'")
    return "/" + posixpath.normpath(path).lstrip("/")


def _check_distinct(field: str, part: str, values: Sequence[str | None], allowed: str) -> None:
    for index, value in enumerate(values):
        if value is not None and value in values[:index]:
            raise InvalidSpec.of(f"{field}[{index}].{part}", value, allowed)


def _parts(field: str, value: str) -> dict[str, Any]:
    match = _SHORT.fullmatch(value.strip())
    if match is None:
        allowed = (
            "claim:/path, claim:/path:ro, claim/sub/path:/path, or a map of claim, mount_path, sub_path, read_only"
        )
        raise InvalidSpec.of(field, value, allowed)
    read_only = True if match["mode"] == "ro" else None
    return {name: match[name] for name in ("claim", "sub_path", "mount_path")} | {"read_only": read_only}
