"""Convert a TrainJob's `trainer` and its patches of the runtime to one pod template, and back.

So the pod code is shared by all kinds; parts that a TrainJob does not support are refused here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.kinds.layers import laid_over
from ptjob_provider.core.kinds.trainjob.words import (
    MANAGER,
    PATCHABLE,
    PATCHABLE_OF_CONTAINER,
    PATCHES,
    STEP,
    patch_of,
    pod_template_of,
    replicated_jobs,
    with_replicated_jobs,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.identity import Manifest

CONTAINER = STEP

_TRAINER = {"image": "image", "command": "command", "args": "args", "env": "env", "resources": "resourcesPerNode"}
"""Fields of the training container, and their places in a TrainJob."""

_FIELDS = {
    "workingDir": "working_dir",
    "envFrom": "env_from",
    "imagePullPolicy": "image_pull_policy",
    "priorityClassName": "priority_class_name",
    "schedulerName": "scheduler_name",
    "hostNetwork": "host_network",
}
"""User-facing names of fields that only a runtime supports."""

_ADVICE = "only its runtime can say it; have a TrainingRuntime that does, and name it with `runtime`"
_CHANGE_DIR = "; or begin the command with sh -c 'cd … && exec …'"


def template_of(spec: Mapping[str, Any]) -> Manifest:
    """Return a job's pods as a pod template with the training container; expects the newest version."""
    trainer = spec.get("trainer") or {}
    own = {name: trainer[place] for name, place in _TRAINER.items() if trainer.get(place) is not None}
    found: Manifest = {"spec": {"containers": [{"name": CONTAINER, **own}]}}
    for patch in spec.get(PATCHES) or ():
        for entry in replicated_jobs(patch):
            if entry.get("name") == STEP:
                found = laid_over(found, pod_template_of(entry))
    return found


def with_template(spec: Mapping[str, Any], template: Mapping[str, Any]) -> Manifest:
    """Return a job's spec with all of the template, and no other settings of the pods.

    Replaces the existing patch of the pods; of several, the first.

    Raises:
        InvalidSpec: a TrainJob does not support a part of it; the text names the field.
    """
    pod = template["spec"]
    _check_pod(pod)
    own = next(each for each in pod["containers"] if each.get("name") == CONTAINER)
    said = {place: own[name] for name, place in _TRAINER.items() if own.get(name) is not None}
    kept = {name: part for name, part in (spec.get("trainer") or {}).items() if name not in _TRAINER.values()}
    patch = _patch(template, pod)
    whole = {**spec, "trainer": {**kept, **said}}
    patches = _patches(spec.get(PATCHES) or [], patch)
    return {**whole, PATCHES: patches} if patches else {name: whole[name] for name in whole if name != PATCHES}


def _patch(template: Mapping[str, Any], pod: Mapping[str, Any]) -> Manifest:
    containers = [{name: each[name] for name in each if name not in _TRAINER} for each in pod["containers"]]
    changed = [each for each in containers if set(each) != {"name"}]
    spec = {name: part for name, part in pod.items() if name != "containers"}
    parts = {"metadata": template.get("metadata"), "spec": spec | ({"containers": changed} if changed else {})}
    return {name: part for name, part in parts.items() if part}


def _patches(given: list[Manifest], patch: Manifest) -> list[Manifest]:
    if not patch:
        return given
    found, is_said = [], False
    for each in given:
        entries = replicated_jobs(each)
        mine = [entry for entry in entries if entry.get("name") == STEP]
        if not mine:
            found.append(each)
            continue
        others = [entry for entry in entries if entry not in mine]
        ours = [] if is_said else [patch_of(patch)]
        found.append(with_replicated_jobs(each, [*ours, *others]))
        is_said = True
    return found if is_said else [*found, with_replicated_jobs({"manager": MANAGER}, [patch_of(patch)])]


def _check_pod(pod: Mapping[str, Any]) -> None:
    for name, part in pod.items():
        if name not in PATCHABLE and part is not None:
            raise _refused(name, f"pod_template.spec.{name}")
    for key in ("containers", "initContainers"):
        for index, container in enumerate(pod.get(key) or ()):
            _check_container(key, index, container)


def _check_container(key: str, index: int, container: Mapping[str, Any]) -> None:
    is_trainer = key == "containers" and container.get("name") == CONTAINER
    known = PATCHABLE_OF_CONTAINER | set(_TRAINER) if is_trainer else PATCHABLE_OF_CONTAINER
    for name, part in container.items():
        if name in known or part is None:
            continue
        if key == "initContainers":
            raise InvalidSpec(f"init_containers: a TrainJob cannot add one ({container.get('name')}); {_ADVICE}")
        raise _refused(name, f"pod_template.spec.{key}[{index}].{name}")


def _refused(name: str, path: str) -> InvalidSpec:
    more = _CHANGE_DIR if name == "workingDir" else ""
    return InvalidSpec(f"{_FIELDS.get(name, path)}: a TrainJob has no place for it; {_ADVICE}{more}")
