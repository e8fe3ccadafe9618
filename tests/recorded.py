"""Recorded objects from `tests/data`, and the comparison of a rendered manifest with its source."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from ptjob_provider.core.identity import OUTPUTS_ANNOTATION, OWNER_ANNOTATION, SPEC_HASH_ANNOTATION, Owner

DATA = Path(__file__).parent / "data"
OWNER = Owner(
    instance="test",
    ids={"dag_id": "train", "task_id": "fit", "run_id": "manual__1", "map_index": "-1"},
    labels={"try_number": "1"},
)
OUR_LABELS = {
    *("dag_id", "task_id", "run_id", "map_index", "try_number", "app", "release"),
    "pytorch_job_name",
    *("ptjob-provider/managed", "ptjob-provider/attempt"),
}
OUR_ANNOTATIONS = {OWNER_ANNOTATION, SPEC_HASH_ANNOTATION, OUTPUTS_ANNOTATION}
OUR_VARIABLES = {"PTJOB_ATTEMPT", "PTJOB_MODEL_PATH", "PTJOB_TFEVENTS_DIR", "PTJOB_CHECKPOINT_DIR"}


def recorded(name: str) -> dict[str, Any]:
    """Return a copy of a recorded object."""
    return copy.deepcopy(_read(name))


@cache
def _read(name: str) -> dict[str, Any]:
    """Read a file with PyYAML's fast loader if it is built."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found = yaml.load((DATA / f"{name}.yaml").read_text(), Loader=loader)  # noqa: S506 - both are safe
    assert isinstance(found, dict)
    return found


def without_additions(rendered: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the rendered manifest without the allowed additions; it equals the given one if nothing else changed."""
    found = copy.deepcopy(rendered)
    for name in ("name", "namespace"):
        _restore(found["metadata"], given["metadata"], name)
    _unmark(found, given, annotations=OUR_ANNOTATIONS)
    for role, replica in found["spec"]["pytorchReplicaSpecs"].items():
        before = given["spec"]["pytorchReplicaSpecs"][role]["template"]
        _unmark(replica["template"], before, annotations=set())
        for key in ("containers", "initContainers"):
            for container, old in zip(
                replica["template"]["spec"].get(key) or [], before["spec"].get(key) or [], strict=True
            ):
                _restore(container, old, "terminationMessagePolicy")
                _without_variables(container, old)
    return found


def _unmark(found: dict[str, Any], given: dict[str, Any], *, annotations: set[str]) -> None:
    before = given.get("metadata") or {}
    for key, ours in (("labels", OUR_LABELS), ("annotations", annotations)):
        old = before.get(key) or {}
        kept = {name: value for name, value in found["metadata"].get(key, {}).items() if name not in ours - set(old)}
        found["metadata"][key] = kept
        if not found["metadata"][key] and key not in before:
            del found["metadata"][key]
    if not found["metadata"] and "metadata" not in given:
        del found["metadata"]


def _without_variables(container: dict[str, Any], given: dict[str, Any]) -> None:
    if container.get("name") != "pytorch":
        return
    assert {each["name"] for each in container["env"]} >= {"PTJOB_ATTEMPT"}
    container["env"] = [each for each in container["env"] if each["name"] not in OUR_VARIABLES]
    if not container["env"] and "env" not in given:
        del container["env"]


def _restore(found: dict[str, Any], given: dict[str, Any], name: str) -> None:
    if name in given:
        found[name] = given[name]
    else:
        found.pop(name, None)
