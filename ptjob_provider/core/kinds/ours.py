"""What makes an object of any kind ours: its name, its owner, and what is written on it for later."""

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
from ptjob_provider.core.spec.placement import namespace as check_namespace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.identity import Manifest, Owner
    from ptjob_provider.core.outputs import ResolvedOutputs
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
    """Return the manifest without what the API server writes itself."""
    meta = {name: value for name, value in manifest["metadata"].items() if name not in _SERVER_SET}
    return {**{name: value for name, value in manifest.items() if name != "status"}, "metadata": meta}


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt at a job, which gets an object of its own.

    Attributes:
        job: what was asked for.
        owner: whose it is.
        number: 1 for the first.
        exact_name: the object has the job's name as it is, instead of one with a hash of owner and attempt.
        installation: what is added to every job.
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
        attempt: which one; its job's name and namespace come before the manifest's.
        longest: how long a name that is made here may be.

    Raises:
        InvalidSpec: neither the job nor its manifest has a name, or it cannot be one; nor can the namespace.
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
    """Return what is written on the object: whose it is, what it was made from, where its outputs are and who shows."""
    return {
        OWNER_ANNOTATION: owner_annotation(attempt.owner, attempt.number),
        SPEC_HASH_ANNOTATION: digest,
        OUTPUTS_ANNOTATION: json.dumps(outputs.to_dict()),
        **(tensorboard.annotation if tensorboard else {}),
    }


def owned(manifest: Manifest, owner: Owner) -> Manifest:
    """Return the manifest with the owner's object as one more of its owners."""
    if owner.reference is None:
        return manifest
    meta = manifest["metadata"]
    references = [*(meta.get("ownerReferences") or []), dict(owner.reference)]
    return {**manifest, "metadata": {**meta, "ownerReferences": references}}
