"""Where rank 0's training container sees claims, and where in them the declared outputs are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptjob_provider.core.kinds import claims, podtemplate
from ptjob_provider.core.kinds.pytorchjob.replicas import rank0_template
from ptjob_provider.core.kinds.pytorchjob.validation import CONTAINER, ROLES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.outputs import Mount, ResolvedOutputs
    from ptjob_provider.core.spec import Outputs


def mounts(manifest: Mapping[str, Any]) -> tuple[Mount, ...]:
    """Return where rank 0's training container sees claims."""
    return podtemplate.claim_mounts(rank0_template(manifest), container=CONTAINER)


def with_output_mounts(manifest: Manifest, outputs: Outputs) -> Manifest:
    """Return the manifest with each claim that an output names mounted in every role; see `claims`."""
    spec = manifest["spec"]
    roles = spec["pytorchReplicaSpecs"]
    names = [role for role in ROLES if role in roles]
    found = claims.with_output_mounts([roles[role]["template"] for role in names], outputs, container=CONTAINER)
    changed = dict(zip(names, found, strict=True))
    ready = {role: {**replica, "template": changed[role]} for role, replica in roles.items()}
    return {**manifest, "spec": {**spec, "pytorchReplicaSpecs": ready}}


def resolve_outputs(manifest: Mapping[str, Any], outputs: Outputs) -> ResolvedOutputs:
    """Find the declared outputs in the claims that rank 0 mounts.

    Raises:
        InvalidSpec: one is on no claim, or on one that cannot be written.
    """
    return claims.resolve_outputs(rank0_template(manifest), outputs, container=CONTAINER)
