"""What a pod asks this machine for, in the words of `resources`; pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_OWN = re.compile(r"cpu|memory|ephemeral-storage|storage|hugepages-.*|[a-z0-9.-]*kubernetes\.io/.*")
_GPU = re.compile(r"[a-z0-9.-]+/(gpu|mig-[a-z0-9.-]+)")


def devices_of(spec: Mapping[str, Any]) -> int:
    """Return how many GPUs a pod gets: what its containers ask for together."""
    return sum(count for container in spec["containers"] for name, count in extended(container) if is_gpu(name))


def is_gpu(name: str) -> bool:
    """Whether a resource of this name is a GPU, whoever made it."""
    return bool(_GPU.fullmatch(name))


def has_limits(container: Mapping[str, Any]) -> bool:
    """Whether the container has limits of what every machine has."""
    limits = (container.get("resources") or {}).get("limits") or {}
    return any(_OWN.fullmatch(name) for name in limits)


def extended(container: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield the devices that a container asks for, and how many; none of which it asks for none."""
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
