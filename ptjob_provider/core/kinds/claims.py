"""Find claims, declared outputs and the TensorBoard's folder in pod templates."""

from __future__ import annotations

import itertools
import posixpath
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.kinds import pod_template
from ptjob_provider.core.outputs.contract import (
    SCHEME,
    Mount,
    PvcAddress,
    ResolvedOutput,
    ResolvedOutputs,
    mount_for,
    resolve,
)
from ptjob_provider.core.tensorboard import TensorBoardPlan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.spec import Outputs, TrainingJob

MOUNT_ROOT = "/mnt/ptjob"
"""Mount path of claims that only an output's address names."""

OUTPUT_FIELDS = ("model", "tfevents", "checkpoints")

_ENV = {"model": "PTJOB_MODEL_PATH", "tfevents": "PTJOB_TFEVENTS_DIR", "checkpoints": "PTJOB_CHECKPOINT_DIR"}


def placed(
    templates: Sequence[Manifest], job: TrainingJob, *, container: str, image: str
) -> tuple[list[Manifest], ResolvedOutputs, TensorBoardPlan | None]:
    """Return the templates with all claims that the job's outputs need, the outputs, and the TensorBoard.

    Args:
        templates: of all roles, rank 0's first.
        job: the specification.
        container: the name of the training container.
        image: TensorBoard's, of the installation; "" for the job's own.

    Raises:
        InvalidSpec: an output, or the folder of TensorBoard, is on no claim.
    """
    mounted = with_output_mounts(templates, job.outputs, container=container)
    outputs = resolve_outputs(mounted[0], job.outputs, container=container)
    return mounted, outputs, planned(job, mounted[0], outputs, container=container, image=image)


def with_output_mounts(templates: Sequence[Manifest], outputs: Outputs, *, container: str) -> list[Manifest]:
    """Return the templates with unmounted claims of `pvc://` outputs mounted below MOUNT_ROOT.

    Args:
        templates: of all roles, rank 0's first.
        outputs: the declared outputs.
        container: the name of the training container.
    """
    found = list(templates)
    for field in OUTPUT_FIELDS:
        text = getattr(outputs, field)
        if text is None or not text.startswith(SCHEME):
            continue
        address = PvcAddress.parse(text, field=field)
        if mount_for(address, pod_template.claim_mounts(found[0], container=container)) is None:
            found = _with_claim(found, address.claim, container)
    return found


def resolve_outputs(template: Mapping[str, Any], outputs: Outputs, *, container: str) -> ResolvedOutputs:
    """Resolve the declared outputs in the claims that rank 0 mounts.

    Raises:
        InvalidSpec: one is on no claim, or on a read-only one.
    """
    declared = {field: text for field in OUTPUT_FIELDS if (text := getattr(outputs, field)) is not None}
    found = {field: resolved(template, text, field=field, container=container) for field, text in declared.items()}
    return ResolvedOutputs(**found)


def resolved(
    template: Mapping[str, Any], text: str, *, field: str, container: str, reads: bool = False
) -> ResolvedOutput:
    """Resolve a folder or file in the claims that a container mounts, unless another mount hides it.

    Args:
        template: of the pod.
        text: an address, or the path as the program sees it.
        field: the field's name for errors.
        container: the name of the container.
        reads: see `outputs.resolve`.

    Raises:
        InvalidSpec: it is on no claim, or cannot be used there.
    """
    seen = pod_template.claim_mounts(template, container=container)
    working_dir = pod_template.find_container(template, container).get("workingDir")
    found = resolve(text, field=field, mounts=seen, working_dir=working_dir, reads=reads)
    paths = _mount_paths(template, container)
    holding = [path for path in paths if posixpath.commonpath([path, found.container_path]) == path]
    nearest = max(holding, key=len)  # of the claim that it is on, unless a nearer mount hides it
    if nearest not in {_normal(mount.mount_path) for mount in seen}:
        raise InvalidSpec.of(
            field, text, f"what is mounted at {nearest} is no claim's known folder: it may go with the pod"
        )
    return found


def output_variables(outputs: ResolvedOutputs) -> dict[str, str]:
    """Return the variables with the outputs' paths for the program."""
    found = {variable: getattr(outputs, field) for field, variable in _ENV.items()}
    return {variable: output.container_path for variable, output in found.items() if output is not None}


def _with_claim(templates: Sequence[Manifest], claim: str, container: str) -> list[Manifest]:
    taken = {path for template in templates for path in _mount_paths(template, container)}
    path = next(path for path in _wishes(f"{MOUNT_ROOT}/{claim}") if path not in taken)
    mount = Mount(claim=claim, mount_path=path)
    return [pod_template.with_claim(template, mount, container=container) for template in templates]


def _wishes(path: str) -> Iterator[str]:
    yield path
    yield from (f"{path}-{number}" for number in itertools.count(2))


def _mount_paths(template: Mapping[str, Any], container: str) -> list[str]:
    return [_normal(mount["mountPath"]) for mount in pod_template.volume_mounts(template, container=container)]


def _normal(path: str) -> str:
    return "/" + posixpath.normpath(path).lstrip("/")


_FIELD = "tensorboard.logdir"


def planned(
    job: TrainingJob, template: Mapping[str, Any], outputs: ResolvedOutputs, *, container: str, image: str
) -> TensorBoardPlan | None:
    """Return the job's TensorBoard; None if none is requested.

    Args:
        job: the specification.
        template: of rank 0.
        outputs: the job's; tfevents is the default folder.
        container: the name of the training container.
        image: the installation's; "" for the job's own.

    Raises:
        InvalidSpec: there is no folder to show, or it is on no claim.
    """
    asked = job.tensorboard
    if asked is None:
        return None
    if asked.logdir is not None:
        claim, path = _folder(asked.logdir, template, container)
    elif outputs.tfevents is not None:
        claim, path = outputs.tfevents.claim, outputs.tfevents.path
    else:
        raise InvalidSpec.of("tensorboard", "true", "set together with `tfevents` or `logdir`: a folder to show")
    found = TensorBoardPlan(claim=claim, path=path, image=asked.image or image)
    return found.served_as(asked.service_type) if asked.service_type else found


def _folder(text: str, template: Mapping[str, Any], container: str) -> tuple[str, str]:
    """Return the claim and the path on it; an address needs no mount, since TensorBoard's pod has its own."""
    if text.startswith(SCHEME):
        address = PvcAddress.parse(text, field=_FIELD, or_root=True)
        return address.claim, address.path
    found = resolved(template, text, field=_FIELD, container=container, reads=True)
    return found.claim, found.path
