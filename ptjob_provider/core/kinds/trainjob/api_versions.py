"""Convert between the versions of `trainer.kubeflow.org/v1alpha1`, whose fields change with every minor release.

    version      what is changed of the runtime    where
    ----------   -------------------------------   ------------------------------------------------------------------
    2.3          everything in `PATCHABLE`         `runtimePatches[].trainingRuntimeSpec.template.spec.replicatedJobs[]`
    2.2          no grace                          the same: a server refuses what it does not know
    2.1          nor security contexts             `podTemplateOverrides[]`, `metadata` and `spec` apart
    2.0          nor metadata, affinity, secrets   `podSpecOverrides[]`, with labels and annotations in the job's spec

Jobs are rendered in the newest version; `in_words_of` converts them for an older server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.in_pod.sync_code import CONTAINER as SYNC_CONTAINER
from ptjob_provider.core.spec.parsers import mapping, sequence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ptjob_provider.core.identity import Manifest

STEP = "node"
"""The runtime's replicated job that trains, and its container: Trainer uses one name for both."""

MANAGER = "ptjob-provider/job"

_QUEUES_MANAGER = "kueue.x-k8s.io/manager"

PATCHES, TEMPLATES, PODS = "runtimePatches", "podTemplateOverrides", "podSpecOverrides"

NEWEST = "2.2 or newer"
"""Versions that differ only by the allowed content of a patch, which the field does not show."""

PATCHABLE = frozenset(
    {"serviceAccountName", "volumes", "initContainers", "containers", "imagePullSecrets", "securityContext"}
    | {"nodeSelector", "affinity", "tolerations", "schedulingGates", "terminationGracePeriodSeconds"}
)
"""Patchable parts of a pod's spec; the runtime defines the rest."""

PATCHABLE_OF_CONTAINER = frozenset({"name", "env", "volumeMounts", "securityContext"})

_SINCE_2_2 = frozenset({"securityContext", "terminationGracePeriodSeconds"})
_SINCE_2_1 = _SINCE_2_2 | {"affinity", "imagePullSecrets"}
_DEADLINE = "activeDeadlineSeconds"


def check_newest(spec: Mapping[str, Any]) -> None:
    """Check that a job's spec has no overrides of older versions.

    Raises:
        InvalidSpec: it has; the text names them.
    """
    for name in (TEMPLATES, PODS):
        if spec.get(name):
            raise InvalidSpec(
                f"spec.{name}: a field of Trainer before 2.2; write `{PATCHES}`, which is converted for it"
            )


def without_queues_word(spec: Mapping[str, Any]) -> Manifest:
    """Return a job's spec without Kueue's patch, which its webhook adds to every job and refuses twice.

    Raises:
        InvalidSpec: its patches have not the shape of patches.
    """
    given = sequence(f"spec.{PATCHES}", spec.get(PATCHES) or [])
    patches = [mapping(f"spec.{PATCHES}[{index}]", patch) for index, patch in enumerate(given)]
    kept = [patch for patch in patches if patch.get("manager") != _QUEUES_MANAGER]
    others = {name: part for name, part in spec.items() if name != PATCHES}
    return {**others, PATCHES: kept} if kept else others


def version_of(fields: Iterable[str]) -> str:
    """Return the version of a server whose TrainJobs have these fields in their spec; "" if they do not show it."""
    known = {PATCHES: NEWEST, TEMPLATES: "2.1", PODS: "2.0"}
    return next((version for field, version in known.items() if field in set(fields)), "")


def in_words_of(manifest: Manifest, fields: frozenset[str]) -> Manifest:
    """Return the job converted for a server with these fields in a TrainJob's spec.

    Raises:
        InvalidSpec: a part has no equivalent; the text names the field.
    """
    spec = manifest["spec"]
    if PATCHES in fields or not fields & {TEMPLATES, PODS}:
        return manifest
    if spec.get(_DEADLINE) is not None:
        raise InvalidSpec("active_deadline_seconds: this cluster's Trainer is older than 2.2 and has no deadlines")
    where = TEMPLATES if TEMPLATES in fields else PODS
    kept = {name: part for name, part in spec.items() if name != PATCHES}
    overrides = [_override(entry, where) for patch in spec.get(PATCHES) or () for entry in replicated_jobs(patch)]
    if where == PODS:
        kept |= _metadata_of(spec)
    return {**manifest, "spec": kept | ({where: overrides} if overrides else {})}


def replicated_jobs(patch: Mapping[str, Any]) -> list[Manifest]:
    """Return a patch's changes of the runtime's replicated jobs."""
    found: Any = patch
    for name in ("trainingRuntimeSpec", "template", "spec"):
        found = found.get(name) or {}
    return list(found.get("replicatedJobs") or ())


def pod_template_of(entry: Mapping[str, Any]) -> Manifest:
    """Return the pod template in a replicated job's patch."""
    job = (entry.get("template") or {}).get("spec") or {}
    return dict(job.get("template") or {})


def patch_of(template: Mapping[str, Any], *, step: str = STEP) -> Manifest:
    """Return the patch with these changes of a replicated job's pods."""
    return {"name": step, "template": {"spec": {"template": dict(template)}}}


def with_replicated_jobs(patch: Mapping[str, Any], entries: list[Manifest]) -> Manifest:
    """Return the patch with these changes of the runtime's replicated jobs."""
    runtime = patch.get("trainingRuntimeSpec") or {}
    template = runtime.get("template") or {}
    inner = {**(template.get("spec") or {}), "replicatedJobs": entries}
    return {**patch, "trainingRuntimeSpec": {**runtime, "template": {**template, "spec": inner}}}


def _override(entry: Mapping[str, Any], where: str) -> Manifest:
    template = pod_template_of(entry)
    spec = template.get("spec") or {}
    for name in _SINCE_2_2 if where == TEMPLATES else _SINCE_2_1:
        if spec.get(name) is not None:
            raise InvalidSpec(f"{name}: this cluster's Trainer is too old to change it; have the runtime say it")
    if any(container.get("name") == SYNC_CONTAINER for container in spec.get("initContainers") or ()):
        raise InvalidSpec("code: this cluster's Trainer is older than 2.2; have the code in the image")
    for container in spec.get("containers") or ():
        if container.get("securityContext") is not None:
            raise InvalidSpec("container_security_context: this cluster's Trainer is older than 2.2")
    target = {"targetJobs": [{"name": entry["name"]}]}
    if where == PODS:
        return {**target, **spec}
    return {**target, **{name: part for name, part in template.items() if part}}


def _metadata_of(spec: Mapping[str, Any]) -> Manifest:
    """Return the labels and annotations that 2.0 has in the job's spec, for its pods as well."""
    found: Manifest = {}
    for patch in spec.get(PATCHES) or ():
        for entry in replicated_jobs(patch):
            for name, part in (pod_template_of(entry).get("metadata") or {}).items():
                found[name] = {**(spec.get(name) or {}), **found.get(name, {}), **part}
    return found
