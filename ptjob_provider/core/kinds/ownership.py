"""Mark an object of any kind as ours: its name, its owner, and its annotations."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.identity import (
    MAX_NAME,
    OUTPUTS_ANNOTATION,
    OWNER_ANNOTATION,
    SPEC_HASH_ANNOTATION,
    check_name,
    object_name,
    owner_annotation,
)
from ptjob_provider.core.kinds.kind import DEFAULT_NAMESPACE
from ptjob_provider.core.spec import Installation
from ptjob_provider.core.spec.pods import namespace as check_namespace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.identity import Manifest, Owner
    from ptjob_provider.core.outputs.contract import ResolvedOutputs
    from ptjob_provider.core.spec import TrainingJob
    from ptjob_provider.core.tensorboard import TensorBoardPlan

ATTEMPT_ENV = "PTJOB_ATTEMPT"

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
NO_ISTIO = {"sidecar.istio.io/inject": "false"}

_SERVER_SET = (
    *("uid", "resourceVersion", "generation", "managedFields", "selfLink"),
    *("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"),
)


def without_servers_word(manifest: Manifest) -> Manifest:
    """Return the manifest without the API server's own fields."""
    meta = {name: value for name, value in manifest["metadata"].items() if name not in _SERVER_SET}
    return {**{name: value for name, value in manifest.items() if name != "status"}, "metadata": meta}


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt at a job, with an object of its own.

    Attributes:
        job: the specification.
        owner: its owner.
        number: 1 for the first.
        exact_name: use the job's name unchanged, without a hash of owner and attempt.
        installation: additions to every job.
    """

    job: TrainingJob
    owner: Owner
    number: int
    exact_name: bool = False
    installation: Installation = field(default_factory=Installation)


def with_name(manifest: Manifest, attempt: Attempt, *, longest: int = MAX_NAME) -> Manifest:
    """Return the manifest with the name and the namespace of one attempt.

    Args:
        manifest: the object.
        attempt: the attempt; its job's name and namespace override the manifest's.
        longest: maximum length of a generated name.

    Raises:
        InvalidSpec: neither the job nor its manifest has a name, or the name or the namespace is invalid.
    """
    meta, job = manifest["metadata"], attempt.job
    stem = _stem(meta) if job.name is None else job.name
    field = "manifest.metadata.name" if job.name is None else "name"
    check_name(stem, field=field)
    name = stem if attempt.exact_name else object_name(stem, attempt.owner, attempt.number, longest=longest)
    namespace = job.namespace or meta.get("namespace") or DEFAULT_NAMESPACE
    check_namespace("namespace" if job.namespace else "manifest.metadata.namespace", namespace)
    ours = {"name": name, "namespace": namespace}
    return {**manifest, "metadata": {**ours, **meta, **ours}}


def _stem(meta: Mapping[str, Any]) -> str:
    found = meta.get("name") or (meta.get("generateName") or "").rstrip("-")
    if not found:
        raise InvalidSpec.of("manifest.metadata.name", None, "required, unless `name` is given")
    return str(found)


def our_annotations(
    attempt: Attempt, digest: str, outputs: ResolvedOutputs, tensorboard: TensorBoardPlan | None
) -> dict[str, str]:
    """Return the object's annotations: owner, specification, outputs and TensorBoard."""
    return {
        OWNER_ANNOTATION: owner_annotation(attempt.owner, attempt.number),
        SPEC_HASH_ANNOTATION: digest,
        OUTPUTS_ANNOTATION: json.dumps(outputs.to_dict()),
        **(tensorboard.annotation if tensorboard else {}),
    }


def owned(manifest: Manifest, owner: Owner) -> Manifest:
    """Return the manifest with one more owner reference."""
    if owner.reference is None:
        return manifest
    meta = manifest["metadata"]
    references = [*(meta.get("ownerReferences") or []), dict(owner.reference)]
    return {**manifest, "metadata": {**meta, "ownerReferences": references}}
