"""Which claims a job sees, and where: the short form `claim:/path` and its parts."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import Any

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.spec import literals
from ptjob_provider.core.spec.settings import parse_into, setting

_CLAIM = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SHORT = re.compile(r"(?P<claim>[^/:]+)(?:/(?P<sub_path>[^:]+))?:(?P<mount_path>/[^:]*)(?::(?P<mode>ro|rw))?")
_MAX_NAME = 253


def _claim(field: str, value: Any) -> str:
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
    """A claim, or a folder of it (`sub_path`), at a path of the container."""

    claim: str = setting(_claim)
    mount_path: str = setting(_mount_path)
    sub_path: str | None = setting(_sub_path)
    read_only: bool | None = setting(literals.boolean)

    @classmethod
    def parse(cls, field: str, value: Any) -> VolumeMount:
        """Read `claim:/path`, `claim:/path:ro`, `claim/sub/path:/path` or a map with the same parts.

        Raises:
            InvalidSpec: neither form, or a part is wrong.
        """
        if isinstance(value, str):
            value = _parts(field, value)
        mount = parse_into(cls, literals.mapping(field, value), prefix=f"{field}.")
        for required in ("claim", "mount_path"):
            if getattr(mount, required) is None:
                raise InvalidSpec.of(f"{field}.{required}", None, "required")
        return mount


def volume_mounts(field: str, value: Any) -> tuple[VolumeMount, ...]:
    """Read a list of mounts.

    Raises:
        InvalidSpec: one is wrong, or two share a path.
    """
    items = literals.sequence(field, value)
    found = tuple(VolumeMount.parse(f"{field}[{index}]", item) for index, item in enumerate(items))
    paths = [mount.mount_path for mount in found]
    for index, path in enumerate(paths):
        if path in paths[:index]:
            raise InvalidSpec.of(f"{field}[{index}].mount_path", path, "one mount per path")
    return found


def absolute_path(field: str, value: Any) -> str:
    """Read an absolute path of the container, without `..`; a trailing slash goes."""
    path = literals.text(field, value)
    if not path.startswith("/") or ".." in path.split("/"):
        raise InvalidSpec.of(field, value, "an absolute path without '..'")
    return "/" + posixpath.normpath(path).lstrip("/")


def _parts(field: str, value: str) -> dict[str, Any]:
    match = _SHORT.fullmatch(value.strip())
    if match is None:
        allowed = (
            "claim:/path, claim:/path:ro, claim/sub/path:/path, or a map of claim, mount_path, sub_path, read_only"
        )
        raise InvalidSpec.of(field, value, allowed)
    read_only = True if match["mode"] == "ro" else None
    return {name: match[name] for name in ("claim", "sub_path", "mount_path")} | {"read_only": read_only}
