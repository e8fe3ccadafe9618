"""From a job to the object that is submitted: what was asked for, plus exactly what makes it ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.identity import owner_labels, spec_hash
from ptjob_provider.core.kinds import claims, code, podtemplate, tensorboards
from ptjob_provider.core.kinds.kind import Rendered
from ptjob_provider.core.kinds.nccl import without_nccl
from ptjob_provider.core.kinds.ours import ATTEMPT_ENV, our_annotations, owned, with_name
from ptjob_provider.core.kinds.pytorchjob.claims import resolve_outputs, with_output_mounts
from ptjob_provider.core.kinds.pytorchjob.overlay import requested
from ptjob_provider.core.kinds.pytorchjob.replicas import map_templates, rank0_template
from ptjob_provider.core.kinds.pytorchjob.validation import CONTAINER, validate
from ptjob_provider.core.spec import Installation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ptjob_provider.core.identity import Manifest, Owner
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

    What was asked for gets a name, namespace and owner, the owner's labels (on the pods too) and annotations, the
    `PTJOB_*` variables first in the training container, mounts for declared outputs whose claim is not mounted, what
    fetches its code, and the last lines of failing containers in their pod's status - and nothing else.

    Args:
        job: what was asked for.
        owner: whose it is.
        attempt: 1 for the first.
        exact_name: keep the name as it is, instead of adding a hash of owner and attempt.
        installation: what is added to every job; its change of the pods is not part of what was asked for, and of the
            hash.

    Raises:
        InvalidSpec: the operator would refuse it, or an output is on no claim.
    """
    if job.runtime is not None:
        raise InvalidSpec.of("runtime", job.runtime, "left out: a PyTorchJob has none; or kind=TrainJob")
    installation = installation or Installation()
    named = with_name(requested(job, installation.template), job, owner=owner, attempt=attempt, exact_name=exact_name)
    validate(named)
    named, changes = _without_nccl(named, job, installation.template)
    told = with_output_mounts(_with_code(named, job, image=installation.sync_image), job.outputs)
    outputs = resolve_outputs(told, job.outputs)
    asked, secret = _without_credentials(told, secret=code.secret_name(named["metadata"]["name"]))
    of_any_attempt, _ = _without_credentials(told, secret="code")  # noqa: S106 - a name
    digest = spec_hash({"spec": _without_metadata(of_any_attempt)["spec"], "outputs": outputs.to_dict()})
    tensorboard = tensorboards.planned(
        job, rank0_template(told), outputs, container=CONTAINER, image=installation.tensorboard_image
    )
    annotations = our_annotations(owner, attempt, digest, outputs, tensorboard)
    labels = owner_labels(named["metadata"]["name"], owner, attempt)
    variables = {ATTEMPT_ENV: str(attempt)} | claims.output_variables(outputs)
    ours = map_templates(asked, lambda template: _ours(template, labels, variables))
    manifest = owned(podtemplate.with_metadata(ours, labels=labels, annotations=annotations), owner)
    if installation.change_pod is not None:
        manifest = _with_changed_pods(manifest, installation.change_pod)
        validate(manifest)
    return Rendered(manifest=manifest, outputs=outputs, spec_hash=digest, changes=changes, secret=secret)


def _without_nccl(
    manifest: Manifest, job: TrainingJob, template: TrainingJob | None
) -> tuple[Manifest, tuple[str, ...]]:
    """Return the manifest with another backend where there is no GPU, and what was changed for that."""
    roles = manifest["spec"]["pytorchReplicaSpecs"]
    found, changes = without_nccl([(role, replica["template"]) for role, replica in roles.items()], job, template)
    changed = {role: {**roles[role], "template": each} for role, each in zip(roles, found, strict=True)}
    return {**manifest, "spec": {**manifest["spec"], "pytorchReplicaSpecs": changed}}, changes


def _with_code(manifest: Manifest, job: TrainingJob, *, image: str) -> Manifest:
    """Return the manifest with what fetches the job's code in the pods of every role."""
    if (source := job.code) is None:
        return manifest
    fetched_by = image or code.SYNC_IMAGE
    return map_templates(
        manifest, lambda template: code.with_code(template, source, image=fetched_by, container=CONTAINER)
    )


def _without_credentials(manifest: Manifest, *, secret: str) -> tuple[Manifest, Manifest | None]:
    """Return the manifest without the values of credentials, and the Secret that has them; None if there are none."""
    roles = manifest["spec"]["pytorchReplicaSpecs"]
    templates = {role.lower(): replica["template"] for role, replica in roles.items()}
    found, made = code.hidden(templates, secret=secret, namespace=manifest["metadata"]["namespace"])
    kept = {role: {**replica, "template": found[role.lower()]} for role, replica in roles.items()}
    return {**manifest, "spec": {**manifest["spec"], "pytorchReplicaSpecs": kept}}, made


def _with_changed_pods(manifest: Manifest, change: Callable[[Manifest], Manifest]) -> Manifest:
    """Return the manifest with every role's template as it is after the change of a pod of that role."""
    spec, meta = manifest["spec"], manifest["metadata"]
    roles = {}
    for role, replica in spec["pytorchReplicaSpecs"].items():
        names = {"name": f"{meta['name']}-{role.lower()}-0", "namespace": meta["namespace"]}
        template = replica["template"]
        pod = change({"apiVersion": "v1", "kind": "Pod", **template, "metadata": {**template["metadata"], **names}})
        kept = {key: part for key, part in pod["metadata"].items() if key not in names}
        roles[role] = {**replica, "template": {"metadata": kept, "spec": pod["spec"]}}
    return {**manifest, "spec": {**spec, "pytorchReplicaSpecs": roles}}


def _without_metadata(manifest: Manifest) -> Manifest:
    return map_templates(
        manifest, lambda template: {name: part for name, part in template.items() if name != "metadata"}
    )


def _ours(template: Manifest, labels: Mapping[str, str], variables: Mapping[str, str]) -> Manifest:
    labelled = podtemplate.with_metadata(template, labels=labels, annotations={})
    told = podtemplate.with_leading_env(labelled, variables, container=CONTAINER)
    return podtemplate.with_log_tails(told)
