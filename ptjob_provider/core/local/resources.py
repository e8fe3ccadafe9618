"""Read a pod's resource requests to this machine from its `resources`. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_OWN = re.compile(r"cpu|memory|ephemeral-storage|storage|hugepages-.*|[a-z0-9.-]*kubernetes\.io/.*")
_GPU = re.compile(r"[a-z0-9.-]+/(gpu|mig-[a-z0-9.-]+)")


def devices_of(spec: Mapping[str, Any]) -> int:
    """Return the GPUs that a pod's containers request together."""
    return sum(count for container in spec["containers"] for name, count in extended(container) if is_gpu(name))


def is_gpu(name: str) -> bool:
    """Return whether a resource of this name is a GPU of any vendor."""
    return bool(_GPU.fullmatch(name))


def has_limits(container: Mapping[str, Any]) -> bool:
    """Return whether the container limits resources that every machine has."""
    limits = (container.get("resources") or {}).get("limits") or {}
    return any(_OWN.fullmatch(name) for name in limits)


def extended(container: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield each device that a container requests, with its count."""
    resources = container.get("resources") or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for name, quantity in {**requests, **limits}.items():
        if not _OWN.fullmatch(name) and (count := _count(name, quantity)):
            yield name, count


def _count(name: str, quantity: object) -> int:
    text = str(quantity)
    if not text.isdigit():
        raise InvalidSpec.of(f"resources.limits[{name}]", quantity, "allowed: a whole number")
    return int(text)
