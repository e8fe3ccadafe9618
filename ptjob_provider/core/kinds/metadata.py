"""Validate object metadata like the API server; the schemas of CRDs do not cover it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.identity import check_name
from ptjob_provider.core.spec import literals, placement

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MAX_ANNOTATIONS = 256 * 1024
_OWNER = ("apiVersion", "kind", "name", "uid")
_ONE_OF_THEM = {"orphan", "foregroundDeletion"}


def check_metadata(path: str, meta: Mapping[str, Any]) -> None:
    """Check that the API server would accept it; the kind checks the name.

    Raises:
        InvalidSpec: the text names the part by its path.
    """
    check_labels(path, meta)
    if meta.get("generateName"):
        check_name(meta["generateName"].rstrip("-"), field=f"{path}.generateName")
    _check_finalizers(f"{path}.finalizers", _listed(f"{path}.finalizers", meta))
    _check_owners(f"{path}.ownerReferences", _listed(f"{path}.ownerReferences", meta))


def check_labels(path: str, meta: Mapping[str, Any]) -> None:
    """Check labels and annotations, including a pod template's, whose pods could not be created otherwise.

    Raises:
        InvalidSpec: the text names the key or the value.
    """
    placement.label_map(f"{path}.labels", _texts(f"{path}.labels", meta))
    annotations = placement.annotation_map(f"{path}.annotations", _texts(f"{path}.annotations", meta))
    size = sum(len(text.encode()) for pair in annotations.items() for text in pair)
    if size > _MAX_ANNOTATIONS:
        raise InvalidSpec.of(f"{path}.annotations", f"{size} bytes", f"at most {_MAX_ANNOTATIONS} in all")


def _texts(path: str, meta: Mapping[str, Any]) -> dict[str, str]:
    found = meta.get(path.rpartition(".")[2]) or {}
    for key, value in found.items():
        if value is not None and not isinstance(value, str):
            raise InvalidSpec.of(f"{path}.{key}", value, "a text: quote it")
    return {key: value or "" for key, value in found.items()}


def _listed(path: str, meta: Mapping[str, Any]) -> Sequence[Any]:
    return literals.sequence(path, meta.get(path.rpartition(".")[2]) or [])


def _check_finalizers(path: str, found: Sequence[Any]) -> None:
    for index, item in enumerate(found):
        placement.qualified_name(f"{path}[{index}]", item)
    if set(found) >= _ONE_OF_THEM:
        raise InvalidSpec.of(path, list(found), "not both orphan and foregroundDeletion")


def _check_owners(path: str, found: Sequence[Any]) -> None:
    for index, item in enumerate(found):
        owner = literals.mapping(f"{path}[{index}]", item)
        for name in _OWNER:
            literals.text(f"{path}[{index}].{name}", owner.get(name))
        _check_owner_kind(f"{path}[{index}]", owner)
    if sum(1 for owner in found if owner.get("controller")) > 1:
        raise InvalidSpec.of(path, "two controllers", "one controller at most")


def _check_owner_kind(path: str, owner: Mapping[str, Any]) -> None:
    group, slash, version = owner["apiVersion"].rpartition("/")
    if "/" in group or not version or (slash and not group):
        raise InvalidSpec.of(f"{path}.apiVersion", owner["apiVersion"], "a version such as v1 or apps/v1")
    if (owner["apiVersion"], owner["kind"]) == ("v1", "Event"):
        raise InvalidSpec.of(f"{path}.kind", "Event", "any other: events own nothing")
