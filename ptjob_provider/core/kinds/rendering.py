"""Render a specification to the object of one attempt: the steps that all kinds share.

A kind builds the requested object, takes the pod templates out of it and puts them back. In between, this module mounts
the claims of declared outputs, adds labels and variables to the pods, moves credentials to a Secret, and writes owner,
hash and outputs on the object.
"""

from __future__ import annotations

import itertools
import json
import posixpath
from dataclasses import dataclass, replace
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
    owner_labels,
    spec_hash,
)
from ptjob_provider.core.kinds import code, pod_template
from ptjob_provider.core.kinds.kind import DEFAULT_NAMESPACE, Rendered
from ptjob_provider.core.outputs.contract import (
    SCHEME,
    Mount,
    PvcAddress,
    ResolvedOutput,
    ResolvedOutputs,
    mount_for,
    resolve,
)
from ptjob_provider.core.spec.pods import namespace as check_namespace
from ptjob_provider.core.tensorboard import TensorBoardPlan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ptjob_provider.core.identity import Manifest, Owner
    from ptjob_provider.core.kinds.kind import Attempt
    from ptjob_provider.core.spec import Outputs, TrainingJob


ATTEMPT_ENV = "PTJOB_ATTEMPT"

MOUNT_ROOT = "/mnt/ptjob"
"""Mount path of claims that only an output's address names."""

OUTPUT_FIELDS = ("model", "tfevents", "checkpoints")

_ENV = {"model": "PTJOB_MODEL_PATH", "tfevents": "PTJOB_TFEVENTS_DIR", "checkpoints": "PTJOB_CHECKPOINT_DIR"}

_SERVER_SET = (
    *("uid", "resourceVersion", "generation", "managedFields", "selfLink"),
    *("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"),
)


@dataclass(frozen=True, kw_only=True)
class Pods:
    """Pods of one role, taken out of the job's object.

    Attributes:
        role: the role's name, for messages.
        key: prefix of the role's keys in the job's Secret.
        first: the name of the first pod, as far as it is known.
        container: the name of the training container.
        template: the pod template.
    """

    role: str
    key: str
    first: str
    container: str
    template: Manifest


def without_server_fields(manifest: Manifest) -> Manifest:
    """Return the manifest without the API server's own fields."""
    meta = {name: value for name, value in manifest["metadata"].items() if name not in _SERVER_SET}
    return {**{name: value for name, value in manifest.items() if name != "status"}, "metadata": meta}


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
    names = {"name": name, "namespace": namespace}
    return {**manifest, "metadata": {**names, **meta, **names}}  # before all else, for readers


def _stem(meta: Mapping[str, Any]) -> str:
    stem = meta.get("name") or (meta.get("generateName") or "").rstrip("-")
    if not stem:
        raise InvalidSpec.of("manifest.metadata.name", None, "required, unless `name` is given")
    return str(stem)


def with_code(pods: Sequence[Pods], attempt: Attempt) -> list[Pods]:
    """Return the pods of all roles with the container that brings the job's code; unchanged if the job has no code."""
    source, image = attempt.job.code, attempt.installation.sync_image or code.SYNC_IMAGE
    if source is None:
        return list(pods)
    if source.folder:
        return [
            replace(each, template=code.with_folder(each.template, source, container=each.container)) for each in pods
        ]
    return [
        replace(each, template=code.with_code(each.template, source, image=image, container=each.container))
        for each in pods
    ]


def rendered(
    requested: Manifest,
    pods: Sequence[Pods],
    attempt: Attempt,
    *,
    put_back: Callable[[Manifest, Sequence[Manifest]], Manifest],
    finish: Callable[[Manifest], Manifest] = pod_template.with_log_tails,
) -> Rendered:
    """Return the object of one attempt.

    Args:
        requested: the requested object, with its name.
        pods: the pods of all roles, rank 0's first.
        attempt: the attempt.
        put_back: returns the object with these templates, one for each role in the order of `pods`.
        finish: returns a role's template with the kind's additions.

    Raises:
        InvalidSpec: an output, or TensorBoard's folder, is on no claim.
    """
    job, installation, meta = attempt.job, attempt.installation, requested["metadata"]
    roles = [(each.role, each.template) for each in pods]
    templates, changes = pod_template.without_nccl(roles, job, installation.template)
    templates, outputs, tensorboard = placed(
        templates, job, container=pods[0].container, image=installation.tensorboard_image
    )
    by_key = {each.key: template for each, template in zip(pods, templates, strict=True)}

    sealed, secret = code.hidden(by_key, job.code, secret=code.secret_name(meta["name"]), namespace=meta["namespace"])
    of_any_attempt, _ = code.hidden(by_key, job.code, secret="code", namespace="")  # noqa: S106 - a name
    bare = put_back(requested, [{"spec": each["spec"]} for each in of_any_attempt.values()])
    digest = spec_hash({"spec": bare["spec"], "outputs": outputs.to_dict()})
    labels = owner_labels(meta["name"], attempt.owner, attempt.number)
    variables = {ATTEMPT_ENV: str(attempt.number), **output_variables(outputs)}
    marked = [_marked(each, sealed[each.key], labels, variables) for each in pods]
    whole = [
        _changed(finish(template), each.first, meta["namespace"], installation.change_pod)
        for each, template in zip(pods, marked, strict=True)
    ]
    annotations = _annotations(attempt, digest, outputs, tensorboard)
    manifest = pod_template.with_metadata(put_back(requested, whole), labels=labels, annotations=annotations)
    return Rendered(
        manifest=_owned(manifest, attempt.owner),
        outputs=outputs,
        spec_hash=digest,
        changes=(*changes, *code.left_out(job.code)),
        secret=secret,
    )


def _annotations(
    attempt: Attempt, digest: str, outputs: ResolvedOutputs, tensorboard: TensorBoardPlan | None
) -> dict[str, str]:
    return {
        OWNER_ANNOTATION: owner_annotation(attempt.owner, attempt.number),
        SPEC_HASH_ANNOTATION: digest,
        OUTPUTS_ANNOTATION: json.dumps(outputs.to_dict()),
        **(tensorboard.annotation if tensorboard else {}),
        **code.annotation(attempt.job.code),
    }


def _marked(pods: Pods, template: Manifest, labels: Mapping[str, str], variables: Mapping[str, str]) -> Manifest:
    labelled = pod_template.with_metadata(template, labels=labels, annotations={})
    return pod_template.with_leading_env(labelled, variables, container=pods.container)


def _changed(template: Manifest, name: str, namespace: str, change: Callable[[Manifest], Manifest] | None) -> Manifest:
    """Return the template as changed by the installation's `change_pod`, which the specification's hash leaves out."""
    if change is None:
        return template
    names = {"name": name, "namespace": namespace}
    pod = change({"apiVersion": "v1", "kind": "Pod", **template, "metadata": {**template["metadata"], **names}})
    kept = {key: part for key, part in pod["metadata"].items() if key not in names}
    return {"metadata": kept, "spec": pod["spec"]}


def _owned(manifest: Manifest, owner: Owner) -> Manifest:
    """Return the manifest with one more owner reference."""
    if owner.reference is None:
        return manifest
    meta = manifest["metadata"]
    references = [*(meta.get("ownerReferences") or []), dict(owner.reference)]
    return {**manifest, "metadata": {**meta, "ownerReferences": references}}


# --- outputs and TensorBoard


def placed(
    templates: Sequence[Manifest], job: TrainingJob, *, container: str, image: str
) -> tuple[list[Manifest], ResolvedOutputs, TensorBoardPlan | None]:
    """Return the templates with all claims that the job's outputs need, the outputs, and the TensorBoard.

    Args:
        templates: the pod templates of all roles, rank 0's first.
        job: the specification.
        container: the name of the training container.
        image: the installation's image of TensorBoard; "" for the job's own image.

    Raises:
        InvalidSpec: an output, or TensorBoard's folder, is on no claim.
    """
    mounted = with_output_mounts(templates, job.outputs, container=container)
    outputs = resolve_outputs(mounted[0], job.outputs, container=container)
    return mounted, outputs, planned(job, mounted[0], outputs, container=container, image=image)


def with_output_mounts(templates: Sequence[Manifest], outputs: Outputs, *, container: str) -> list[Manifest]:
    """Return the templates with unmounted claims of `pvc://` outputs mounted below MOUNT_ROOT.

    Args:
        templates: the pod templates of all roles, rank 0's first.
        outputs: the declared outputs.
        container: the name of the training container.
    """
    mounted = list(templates)
    for name in OUTPUT_FIELDS:
        text = getattr(outputs, name)
        if text is None or not text.startswith(SCHEME):
            continue
        address = PvcAddress.parse(text, field=name)
        if mount_for(address, pod_template.claim_mounts(mounted[0], container=container)) is None:
            mounted = _with_claim(mounted, address.claim, container)
    return mounted


def resolve_outputs(template: Mapping[str, Any], outputs: Outputs, *, container: str) -> ResolvedOutputs:
    """Resolve the declared outputs in the claims that rank 0 mounts.

    Raises:
        InvalidSpec: an output is on no claim, or on a claim that is mounted read-only.
    """
    declared = {field: text for field in OUTPUT_FIELDS if (text := getattr(outputs, field)) is not None}
    outputs_by_field = {
        field: resolved(template, text, field=field, container=container) for field, text in declared.items()
    }
    return ResolvedOutputs(**outputs_by_field)


def resolved(
    template: Mapping[str, Any], text: str, *, field: str, container: str, reads: bool = False
) -> ResolvedOutput:
    """Resolve a folder or file in the claims that a container mounts, unless another mount hides it.

    Args:
        template: the pod template.
        text: an address, or the path as the program sees it.
        field: the field's name for errors.
        container: the name of the container.
        reads: see `outputs.contract.resolve`.

    Raises:
        InvalidSpec: the folder or file is on no claim, or cannot be used there.
    """
    mounts = pod_template.claim_mounts(template, container=container)
    working_dir = pod_template.find_container(template, container).get("workingDir")
    output = resolve(text, field=field, mounts=mounts, working_dir=working_dir, reads=reads)
    paths = _mount_paths(template, container)
    holding = [path for path in paths if posixpath.commonpath([path, output.container_path]) == path]
    nearest = max(holding, key=len)  # the claim's mount, unless another mount hides the output
    if nearest not in {_normal(mount.mount_path) for mount in mounts}:
        raise InvalidSpec.of(
            field, text, f"what is mounted at {nearest} is no claim's known folder: it may go with the pod"
        )
    return output


def output_variables(outputs: ResolvedOutputs) -> dict[str, str]:
    """Return the variables with the outputs' paths for the program."""
    by_variable = {variable: getattr(outputs, field) for field, variable in _ENV.items()}
    return {variable: output.container_path for variable, output in by_variable.items() if output is not None}


def _with_claim(templates: Sequence[Manifest], claim: str, container: str) -> list[Manifest]:
    taken = {path for template in templates for path in _mount_paths(template, container)}
    path = next(path for path in _candidates(f"{MOUNT_ROOT}/{claim}") if path not in taken)
    mount = Mount(claim=claim, mount_path=path)
    return [pod_template.with_claim(template, mount, container=container) for template in templates]


def _candidates(path: str) -> Iterator[str]:
    yield path
    yield from (f"{path}-{number}" for number in itertools.count(2))


def _mount_paths(template: Mapping[str, Any], container: str) -> list[str]:
    return [_normal(mount["mountPath"]) for mount in pod_template.volume_mounts(template, container=container)]


def _normal(path: str) -> str:
    return "/" + posixpath.normpath(path).lstrip("/")


def planned(
    job: TrainingJob, template: Mapping[str, Any], outputs: ResolvedOutputs, *, container: str, image: str
) -> TensorBoardPlan | None:
    """Return the job's TensorBoard; None if none is requested.

    Args:
        job: the specification.
        template: rank 0's pod template.
        outputs: the job's outputs; tfevents is the default folder.
        container: the name of the training container.
        image: the installation's image of TensorBoard; "" for the job's own image.

    Raises:
        InvalidSpec: there is no folder to show, or it is on no claim.
    """
    requested = job.tensorboard
    if requested is None:
        return None
    if requested.logdir is not None:
        claim, path = _folder(requested.logdir, template, container)
    elif outputs.tfevents is not None:
        claim, path = outputs.tfevents.claim, outputs.tfevents.path
    else:
        raise InvalidSpec.of("tensorboard", "true", "set `tfevents` or `logdir`, too: the folder that it shows")
    plan = TensorBoardPlan(claim=claim, path=path, image=requested.image or image)
    return plan.served_as(requested.service_type) if requested.service_type else plan


def _folder(text: str, template: Mapping[str, Any], container: str) -> tuple[str, str]:
    """Return the folder's claim and path; an address needs no mount, because TensorBoard's pod has its own."""
    if text.startswith(SCHEME):
        address = PvcAddress.parse(text, field="tensorboard.logdir", or_root=True)
        return address.claim, address.path
    folder = resolved(template, text, field="tensorboard.logdir", container=container, reads=True)
    return folder.claim, folder.path
