"""Render a specification to the object of one attempt: the steps that all kinds share.

A kind builds the requested object, takes its pods out and puts them back. In between, this module adds what the job
needs to the pods, removes credentials, and marks the object as ours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ptjob_provider.core.identity import owner_labels, spec_hash
from ptjob_provider.core.kinds import claims, code, pod_template
from ptjob_provider.core.kinds.kind import Rendered
from ptjob_provider.core.kinds.ownership import ATTEMPT_ENV, our_annotations, owned
from ptjob_provider.core.kinds.pod_template import changed, without_nccl

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kinds.ownership import Attempt
    from ptjob_provider.core.outputs.contract import ResolvedOutputs
    from ptjob_provider.core.tensorboard import TensorBoardPlan


@dataclass(frozen=True, kw_only=True)
class Pods:
    """The pods of one role, apart from the object that requests them.

    Attributes:
        role: its name, for people.
        key: distinguishes it from the other roles in the job's Secret.
        first: the name of the first pod, as far as known.
        container: the name of the training container.
        template: the pod template.
    """

    role: str
    key: str
    first: str
    container: str
    template: Manifest


def with_code(pods: Sequence[Pods], attempt: Attempt) -> list[Pods]:
    """Return the pods of all roles with the sync container, if the job has code to fetch."""
    source, image = attempt.job.code, attempt.installation.sync_image or code.SYNC_IMAGE
    if source is None:
        return list(pods)
    return [
        replace(each, template=code.with_code(each.template, source, image=image, container=each.container))
        for each in pods
    ]


def rendered(
    asked: Manifest,
    pods: Sequence[Pods],
    attempt: Attempt,
    *,
    together: Callable[[Manifest, Sequence[Manifest]], Manifest],
    finished: Callable[[Manifest], Manifest] = pod_template.with_log_tails,
) -> Rendered:
    """Return the object of one attempt.

    Args:
        asked: the requested object, with its name.
        pods: of all its roles, rank 0's first.
        attempt: the attempt.
        together: returns the object with these templates, one for each role in that order.
        finished: returns a role's template with the kind's additions.

    Raises:
        InvalidSpec: an output, or the folder of TensorBoard, is on no claim.
    """
    told, changes = _told(pods, attempt)
    rank0 = told[0]
    outputs = claims.resolve_outputs(rank0.template, attempt.job.outputs, container=rank0.container)
    tensorboard = _tensorboard(rank0, outputs, attempt)
    sealed, secret = _sealed(told, asked, secret=code.secret_name(asked["metadata"]["name"]))
    of_any_attempt, _ = _sealed(told, asked, secret="code")  # noqa: S106 - a name
    bare = together(asked, [_without_metadata(each.template) for each in of_any_attempt])
    digest = spec_hash({"spec": bare["spec"], "outputs": outputs.to_dict()})
    labels = owner_labels(asked["metadata"]["name"], attempt.owner, attempt.number)
    variables = {ATTEMPT_ENV: str(attempt.number)} | claims.output_variables(outputs)
    ours = [
        _changed(replace(each, template=finished(_ours(each, labels, variables))), asked, attempt) for each in sealed
    ]
    annotations = our_annotations(attempt, digest, outputs, tensorboard)
    whole = pod_template.with_metadata(together(asked, ours), labels=labels, annotations=annotations)
    manifest = owned(whole, attempt.owner)
    return Rendered(manifest=manifest, outputs=outputs, spec_hash=digest, changes=changes, secret=secret)


def _told(pods: Sequence[Pods], attempt: Attempt) -> tuple[list[Pods], tuple[str, ...]]:
    """Return the pods with the backend replaced if there is no GPU, and mounts for outputs; and the changes."""
    roles = [(each.role, each.template) for each in pods]
    bare, changes = without_nccl(roles, attempt.job, attempt.installation.template)
    templates = claims.with_output_mounts(bare, attempt.job.outputs, container=pods[0].container)
    return [replace(each, template=template) for each, template in zip(pods, templates, strict=True)], changes


def _tensorboard(rank0: Pods, outputs: ResolvedOutputs, attempt: Attempt) -> TensorBoardPlan | None:
    image = attempt.installation.tensorboard_image
    return claims.planned(attempt.job, rank0.template, outputs, container=rank0.container, image=image)


def _sealed(pods: Sequence[Pods], asked: Manifest, *, secret: str) -> tuple[list[Pods], Manifest | None]:
    """Return the pods without credentials, and the Secret that has them; None if there are none."""
    templates = {each.key: each.template for each in pods}
    found, made = code.hidden(templates, secret=secret, namespace=asked["metadata"]["namespace"])
    return [replace(each, template=found[each.key]) for each in pods], made


def _without_metadata(template: Manifest) -> Manifest:
    return {name: part for name, part in template.items() if name != "metadata"}


def _ours(pods: Pods, labels: Mapping[str, str], variables: Mapping[str, str]) -> Manifest:
    labelled = pod_template.with_metadata(pods.template, labels=labels, annotations={})
    return pod_template.with_leading_env(labelled, variables, container=pods.container)


def _changed(pods: Pods, asked: Manifest, attempt: Attempt) -> Manifest:
    """Return the template after the installation's own change of a pod, which is not part of the specification."""
    change = attempt.installation.change_pod
    if change is None:
        return pods.template
    return changed(pods.template, change, name=pods.first, namespace=asked["metadata"]["namespace"])
