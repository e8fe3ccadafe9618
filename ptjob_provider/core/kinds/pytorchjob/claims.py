"""Where rank 0's training container sees claims, and where in them the declared outputs are."""

from __future__ import annotations

import itertools
import posixpath
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.kinds import podtemplate
from ptjob_provider.core.kinds.pytorchjob.replicas import map_templates, rank0_template
from ptjob_provider.core.kinds.pytorchjob.validation import CONTAINER
from ptjob_provider.core.outputs import SCHEME, Mount, PvcAddress, ResolvedOutput, ResolvedOutputs, mount_for, resolve

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.spec import Outputs

MOUNT_ROOT = "/mnt/ptjob"
"""Where a claim is mounted that only an output's address names."""

OUTPUT_FIELDS = ("model", "tfevents", "checkpoints")


def mounts(manifest: Mapping[str, Any]) -> tuple[Mount, ...]:
    """Return where rank 0's training container sees claims."""
    return podtemplate.claim_mounts(rank0_template(manifest), container=CONTAINER)


def with_output_mounts(manifest: Manifest, outputs: Outputs) -> Manifest:
    """Return the manifest with each claim that a `pvc://` output names and no mount shows mounted below MOUNT_ROOT."""
    for field in OUTPUT_FIELDS:
        text = getattr(outputs, field)
        if text is None or not text.startswith(SCHEME):
            continue
        address = PvcAddress.parse(text, field=field)
        if mount_for(address, mounts(manifest)) is None:
            manifest = _with_claim(manifest, address.claim)
    return manifest


def resolve_outputs(manifest: Mapping[str, Any], outputs: Outputs) -> ResolvedOutputs:
    """Find the declared outputs in the claims that rank 0 mounts.

    Raises:
        InvalidSpec: one is on no claim, or on one that cannot be written.
    """
    declared = {field: text for field in OUTPUT_FIELDS if (text := getattr(outputs, field)) is not None}
    return ResolvedOutputs(**{field: _resolved(manifest, field, text) for field, text in declared.items()})


def _with_claim(manifest: Manifest, claim: str) -> Manifest:
    roles = manifest["spec"]["pytorchReplicaSpecs"].values()
    taken = {path for role in roles for path in _mount_paths(role["template"])}
    path = next(path for path in _wishes(f"{MOUNT_ROOT}/{claim}") if path not in taken)
    mount = Mount(claim=claim, mount_path=path)
    return map_templates(manifest, lambda template: podtemplate.with_claim(template, mount, container=CONTAINER))


def _wishes(path: str) -> Iterator[str]:
    yield path
    yield from (f"{path}-{number}" for number in itertools.count(2))


def _resolved(manifest: Mapping[str, Any], field: str, text: str) -> ResolvedOutput:
    template, seen = rank0_template(manifest), mounts(manifest)
    working_dir = podtemplate.find_container(template, CONTAINER).get("workingDir")
    found = resolve(text, field=field, mounts=seen, working_dir=working_dir)
    holding = [path for path in _mount_paths(template) if posixpath.commonpath([path, found.container_path]) == path]
    nearest = max(holding, key=len)  # of the claim that it was found on, if not of something nearer
    if nearest not in {_normal(mount.mount_path) for mount in seen}:
        raise InvalidSpec.of(
            field, text, f"what is mounted at {nearest} is no claim's known folder: it may go with the pod"
        )
    return found


def _mount_paths(template: Mapping[str, Any]) -> list[str]:
    return [_normal(mount["mountPath"]) for mount in podtemplate.volume_mounts(template, container=CONTAINER)]


def _normal(path: str) -> str:
    return "/" + posixpath.normpath(path).lstrip("/")
