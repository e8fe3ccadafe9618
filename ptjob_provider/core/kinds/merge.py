"""Merge one object over another like `kubectl apply`: maps are merged, and the upper layer overrides.

Lists are merged where Kubernetes has a key for their items, and replaced elsewhere:

    containers, initContainers      by name, each merged in turn
    env, volumes, imagePullSecrets  by name, the upper one's item as a whole
    volumeMounts                    by mountPath, the same
    tolerations, envFrom            all of the lower one's, then the upper one's further ones
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Manifest

_ONE_OF = ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle")
"""Maps whose keys exclude each other: merged, they would be refused."""


def laid_over(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> Manifest:
    """Return a new merged object; where both have a value, the upper one's is used."""
    return {**lower, **{name: _merged(name, lower.get(name), part) for name, part in upper.items()}}


def named_over(lower: Iterable[Any], upper: Iterable[Any], *, key: str = "name") -> list[Any]:
    """Return the items of both lists; an upper one replaces the lower one of its name."""
    by_name = {item.get(key): item for item in upper}
    kept = [by_name.get(item.get(key), item) for item in lower]
    taken = {item.get(key) for item in kept}
    return kept + [item for name, item in by_name.items() if name not in taken]


def added(lower: Iterable[Any], upper: Iterable[Any]) -> list[Any]:
    """Return the items of both lists, each once."""
    found = list(lower)
    return found + [item for item in upper if item not in found]


def _containers(lower: Iterable[Any], upper: Iterable[Any]) -> list[Any]:
    known = {item.get("name"): item for item in lower}
    return named_over(known.values(), [laid_over(known.get(item.get("name"), {}), item) for item in upper])


_LISTS: Mapping[str, Callable[[Iterable[Any], Iterable[Any]], list[Any]]] = {
    "containers": _containers,
    "initContainers": _containers,
    "env": named_over,
    "volumes": named_over,
    "imagePullSecrets": named_over,
    "volumeMounts": lambda lower, upper: named_over(lower, upper, key="mountPath"),
    "tolerations": added,
    "envFrom": added,
}


def _merged(name: str, lower: Any, upper: Any) -> Any:
    if isinstance(lower, Mapping) and isinstance(upper, Mapping) and name not in _ONE_OF:
        return laid_over(lower, upper)
    if name in _LISTS and isinstance(lower, list) and isinstance(upper, list):
        return _LISTS[name](lower, upper)
    return upper


def with_changes(original: Any, before: Any, after: Any) -> Any:
    """Return the original with the difference of its two readings applied; fields unknown to the reader stay."""
    if before == after:
        return original
    every = (original, before, after)
    if all(isinstance(each, Mapping) for each in every):
        kept = {name: part for name, part in original.items() if name in after or name not in before}
        return kept | {name: with_changes(original.get(name), before.get(name), part) for name, part in after.items()}
    if all(isinstance(each, list) for each in every) and len(original) == len(before) == len(after):
        return [with_changes(*parts) for parts in zip(*every, strict=True)]
    return after
