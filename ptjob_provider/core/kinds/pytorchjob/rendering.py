"""Render a PyTorchJob for submission: the requested object plus what marks it as ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.kinds.ours import Attempt, with_name
from ptjob_provider.core.kinds.pytorchjob.overlay import requested
from ptjob_provider.core.kinds.pytorchjob.validation import CONTAINER, ROLES, validate
from ptjob_provider.core.kinds.rendering import Pods, rendered, with_code
from ptjob_provider.core.spec import Installation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ptjob_provider.core.identity import Manifest, Owner
    from ptjob_provider.core.kinds.kind import Rendered
    from ptjob_provider.core.spec import TrainingJob


def render(
    job: TrainingJob,
    *,
    owner: Owner,
    attempt: int,
    exact_name: bool = False,
    installation: Installation | None = None,
) -> Rendered:
    """Return the object of one attempt.

    Adds to the requested object: name, namespace and owner, the owner's labels (on the pods too) and annotations, the
    `PTJOB_*` variables first in the training container, mounts for declared outputs whose claim is not mounted, the
    sync container, and FallbackToLogsOnError - and nothing else.

    Args:
        job: the specification.
        owner: its owner.
        attempt: 1 for the first.
        exact_name: keep the name unchanged, without a hash of owner and attempt.
        installation: additions to every job; its change of the pods is not part of the specification and its hash.

    Raises:
        InvalidSpec: the operator would refuse it, or an output is on no claim.
    """
    if job.runtime is not None:
        raise InvalidSpec.of("runtime", job.runtime, "left out: a PyTorchJob has none; or kind=TrainJob")
    installation = installation or Installation()
    this = Attempt(job=job, owner=owner, number=attempt, exact_name=exact_name, installation=installation)
    asked = with_name(requested(job, installation.template), this)
    validate(asked)
    made = rendered(asked, with_code(_pods(asked), this), this, together=_with_templates)
    if installation.change_pod is not None:
        validate(made.manifest)
    return made


def _pods(manifest: Manifest) -> list[Pods]:
    """Return the pods of each role, rank 0's first."""
    name, roles = manifest["metadata"]["name"], manifest["spec"]["pytorchReplicaSpecs"]
    return [
        Pods(
            role=role,
            key=role.lower(),
            first=f"{name}-{role.lower()}-0",
            container=CONTAINER,
            template=roles[role]["template"],
        )
        for role in ROLES
        if role in roles
    ]


def _with_templates(manifest: Manifest, templates: Sequence[Manifest]) -> Manifest:
    """Return the manifest with new templates, one per role, rank 0's first."""
    spec, roles = manifest["spec"], manifest["spec"]["pytorchReplicaSpecs"]
    found = dict(zip((role for role in ROLES if role in roles), templates, strict=True))
    changed = {role: {**replica, "template": found[role]} for role, replica in roles.items()}
    return {**manifest, "spec": {**spec, "pytorchReplicaSpecs": changed}}
