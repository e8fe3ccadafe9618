"""Interface of a kind of job, its values, and the steps of rendering that all kinds share; `KINDS` lists the kinds.

To render a job, a kind builds the requested object, takes the pod templates out of it and puts them back. In between,
`rendered` mounts the claims of declared outputs, adds labels and variables to the pods, moves credentials to a Secret,
and writes owner, hash and outputs on the object.
"""

from __future__ import annotations

import itertools
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.identity import (
    CODE_ANNOTATION,
    MAX_NAME,
    OUTPUTS_ANNOTATION,
    OWNER_ANNOTATION,
    PREFIX,
    SPEC_HASH_ANNOTATION,
    TENSORBOARD_ANNOTATION,
    check_name,
    labels_of_rendered,
    object_name,
    owner_annotation,
    owner_labels,
    spec_hash,
    with_owner_labels,
)
from ptjob_provider.core.kinds import code, pod_template
from ptjob_provider.core.kinds.queue import QUEUE_LABEL
from ptjob_provider.core.outputs.contract import (
    SCHEME,
    Mount,
    PvcAddress,
    ResolvedOutput,
    ResolvedOutputs,
    mount_for,
    normal_path,
    resolve,
)
from ptjob_provider.core.spec import Installation, TrainingJob
from ptjob_provider.core.spec.parsers import MAX_PODS
from ptjob_provider.core.spec.places import places, refusals
from ptjob_provider.core.spec.pods import dns_label
from ptjob_provider.core.status import JobPhase, JobStatus, parse_instant
from ptjob_provider.core.tensorboard import TensorBoardPlan
from ptjob_provider.core.wire import literal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from datetime import datetime

    from ptjob_provider.core.history import Termination
    from ptjob_provider.core.identity import Manifest, Owner

DEFAULT_NAMESPACE = "default"
ATTEMPT_ENV = "PTJOB_ATTEMPT"

MOUNT_ROOT = "/mnt/ptjob"
"""Mount path of claims that only an output's address names."""

_ENV = {"model": "PTJOB_MODEL_PATH", "tfevents": "PTJOB_TFEVENTS_DIR", "checkpoints": "PTJOB_CHECKPOINT_DIR"}

_SERVER_SET = (
    *("uid", "resourceVersion", "generation", "managedFields", "selfLink"),
    *("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"),
)


@dataclass(frozen=True, kw_only=True)
class Replica:
    """One replica of a job.

    Attributes:
        name: stays the same when the pod is recreated; it is the pod's own name if that stays the same, too.
        role: `master` or `worker`, as in the operator's labels.
        index: number of the pod within the role, from 0.
        rank: the pod's rank within the job; if a pod has several processes, it is the node's rank.
        gpus: requested GPUs.
        template: the pod's template, as far as the job's object defines it.
        is_restarted: False if the job's object says that a failed container is not restarted.
    """

    name: str
    role: str
    index: int
    rank: int
    gpus: int
    template: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    is_restarted: bool = field(default=True, compare=False, repr=False)


@dataclass(frozen=True, kw_only=True)
class PodOwner:
    """Job to which a pod belongs, by the pod's own metadata; "" if unknown.

    Attributes:
        name: the job's name.
        uid: the job's uid.
    """

    name: str = ""
    uid: str = ""


def numbered(name: str, roles: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[Replica]:
    """Yield the replicas of a job by its roles and their specifications, rank 0's first; at most MAX_PODS.

    The CRDs admit two billion, which would take the memory of whoever watches the namespace.
    """
    ranks = iter(range(MAX_PODS))
    for role, spec in roles:
        template = template_in(spec)
        gpus, restarts = pod_template.count_gpus(template), spec.get("restartPolicy") != "Never"
        alike = Replica(name="", role=role, index=0, rank=0, gpus=gpus, template=template, is_restarted=restarts)
        for index, rank in zip(range(pod_template.count(spec)), ranks, strict=False):
            yield replace(alike, name=f"{name}-{role}-{index}", index=index, rank=rank)


def template_in(role: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a role's pod template; one with an unnamed container if it has none, which the CRDs admit."""
    template = role.get("template") or {}
    pod = template.get("spec") or {}
    return template if pod.get("containers") else {**template, "spec": {**pod, "containers": [{}]}}


def owner_in(pod: Mapping[str, Any], kind: str) -> PodOwner:
    """Return the job of this kind among the pod's owner references."""
    owners = pod["metadata"].get("ownerReferences") or ()
    owner: Mapping[str, Any] = next((each for each in owners if each.get("kind") == kind), {})
    return PodOwner(name=str(owner.get("name") or ""), uid=str(owner.get("uid") or ""))


def true_conditions(job: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the conditions of a job that are true, by type."""
    conditions = (job.get("status") or {}).get("conditions") or []
    return {each["type"]: each for each in conditions if each.get("status") == "True"}


def status_of(
    job: Mapping[str, Any], phase: JobPhase, deciding: Mapping[str, Any], *, started: Any, ended: Any = None
) -> JobStatus:
    """Return a job's status; its end is the time of the condition that decides, unless another time is given."""
    return JobStatus(
        phase=phase,
        reason=deciding.get("reason") or "",
        message=deciding.get("message") or "",
        created_at=parse_instant(job["metadata"].get("creationTimestamp")),
        started_at=parse_instant(started),
        finished_at=parse_instant(ended or deciding.get("lastTransitionTime")) if phase.is_terminal else None,
    )


@dataclass(frozen=True, kw_only=True)
class Reported:
    """Replica states reported by a job's own status, if its kind reports any.

    Attributes:
        pods: pod name → replica name, including deleted pods.
        ends: failed containers, one per replica, including those of deleted pods.
        restarts: number of recreated replicas.
    """

    pods: Mapping[str, str] = field(default_factory=dict)
    ends: tuple[Termination, ...] = ()
    restarts: int = 0


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt at a job; each attempt has its own object.

    Attributes:
        job: the specification.
        owner: the job's owner.
        number: the attempt's number, from 1.
        exact_name: use the job's name unchanged, without a hash of owner and attempt.
        installation: settings that apply to every job.
        variables: more variables of the training containers.
    """

    job: TrainingJob
    owner: Owner
    number: int
    exact_name: bool = False
    installation: Installation = field(default_factory=Installation)
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """One attempt's object, ready to submit, with its outputs and the hash of the specification.

    The hash leaves out all metadata, the attempt and credentials: it is the same for every attempt of an unchanged job.

    Attributes:
        changes: sentences about what is left out of the user's input, or of the installation's template.
        secret: the Secret that the job's containers refer to, to be created with the job as its owner; None if there is
            none. Only the API server may see its content.
    """

    manifest: Manifest
    outputs: ResolvedOutputs
    spec_hash: str
    changes: tuple[str, ...] = ()
    secret: Manifest | None = field(default=None, repr=False)


class Kind(ABC):
    """Interface of one kind of job: everything in which CRDs differ for code outside of `kinds`, with defaults.

    The methods are pure functions of a job's object and its pods, as the API server returns them.

    Attributes:
        KIND: its name, as in objects and references.
        API_VERSION: group and version.
        PLURAL: the resource's name in paths.
        OPERATOR: the operator that runs the kind's jobs, by the name that people know.
        CONTAINER: the name of the training container; without a container of this name, the pod's first one trains.
        HAS_FIXED_POD_NAMES: True if a replica's pod has the replica's name.
        HAS_LABELLED_PODS: True if every version of the operator puts this package's labels on a job's pods.
        POD_LABEL: key of the operator's label on a job's pods; its value is the job's name.
        OPERATORS_LABELS: keys, and prefixes of keys, of the labels that the operator gives each pod, whatever its
            template has.
        OLD_POD_LABEL: key of that label with an older operator, see `is_older`; "" if there is none.
        TAKES_POLICY: True if a job takes its policy from the installation's template, too.
        STOP_RUNNING_PODS: the patch that makes the operator stop the remaining pods of an ended job; None if it
            always stops them.
        DELETION: the propagation policy of a deletion: `Foreground`, which deletes the pods first, if the operator
            supports it.
    """

    KIND: str
    API_VERSION: str
    PLURAL: str
    OPERATOR: str
    CONTAINER: str
    HAS_FIXED_POD_NAMES = False
    HAS_LABELLED_PODS = True
    POD_LABEL: str
    OPERATORS_LABELS: frozenset[str]
    OLD_POD_LABEL = ""
    TAKES_POLICY = False
    STOP_RUNNING_PODS: Manifest | None = None
    DELETION = "Foreground"

    def converted_for(self, manifest: Manifest, fields: frozenset[str], /) -> Manifest:  # noqa: ARG002 - one version
        """Return the object, or a patch, converted for a server with these fields in the kind's spec.

        Raises:
            InvalidSpec: a part has no equivalent; the text names the field.
        """
        return manifest

    def render(
        self,
        job: TrainingJob,
        *,
        owner: Owner,
        attempt: int,
        exact_name: bool = False,
        installation: Installation | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> Rendered:
        """Return the object of one attempt; the arguments are the fields of `Attempt`.

        Raises:
            InvalidSpec: the kind does not support a field, or the operator would refuse it; the text names the field.
        """
        self.check_fields(job.given)
        installation = installation or Installation()
        requested = Attempt(job=job, owner=owner, number=attempt, exact_name=exact_name, installation=installation)
        requested = replace(requested, variables=variables or {})
        made = self.build(requested)
        self._check_labels(requested, made.manifest)
        template = requested.installation.template
        policy = {*places(TrainingJob, "PyTorchJob"), "queue_name"}
        names = ", ".join(sorted(policy & template.given.keys() - job.given.keys())) if template else ""
        if self.TAKES_POLICY or not names:
            return made
        said = (
            f"{names} of [ptjob] job_template: not applied; a {self.KIND} takes only labels, runtime and what pods have"
        )
        return replace(made, changes=(*made.changes, said))

    def _check_labels(self, requested: Attempt, manifest: Mapping[str, Any]) -> None:
        """Check labels and annotations.

        An operator replaces its own labels of pods, or cannot create the pods. Kueue starts a suspended job.
        """
        pod_template.check_labels("metadata", manifest["metadata"])
        if requested.job.suspend and QUEUE_LABEL in (manifest["metadata"].get("labels") or {}):
            rule = f"allowed in a queue of Kueue (label {QUEUE_LABEL}): False, as it resumes what it admits"
            raise InvalidSpec.of("suspend", requested.job.suspend, rule)
        for template in self.templates(manifest):
            meta = template.get("metadata") or {}
            pod_template.check_labels("template.metadata", meta)
            for key, value in (meta.get("labels") or {}).items():
                if not {key, f"{key.partition('/')[0]}/"}.isdisjoint(self.OPERATORS_LABELS):
                    rule = f"leave it out of the pods: {self.OPERATOR} writes it, and finds each job's pods by it"
                    raise InvalidSpec.of(_label_field(requested, "template.metadata", key), value, rule)

    @abstractmethod
    def build(self, attempt: Attempt, /) -> Rendered:
        """Return the object of one attempt, see `render`."""

    def lacking(self, given: Mapping[str, Any], /) -> dict[str, str]:
        """Return the set fields that the kind does not support: name → what to do instead."""
        refused = refusals(TrainingJob, self.KIND)
        return {name: refused[name] for name, value in given.items() if name in refused and value not in ((), [])}

    def check_fields(self, given: Mapping[str, Any], *, but: Collection[str] = ()) -> None:
        """Check that the kind supports a job's set fields.

        Args:
            given: the set fields.
            but: names of fields whose value is not known yet; they are not refused.

        Raises:
            InvalidSpec: the kind does not support a field; the text names it.
        """
        for name, why in self.lacking(given).items():
            if name not in but:
                rule = f"a {self.KIND} has no place for it: {why}"
                is_word = isinstance(given[name], str | int)
                raise InvalidSpec.of(name, given[name], rule) if is_word else InvalidSpec.at(name, rule)

    @abstractmethod
    def read_status(self, job: Mapping[str, Any], /) -> JobStatus:
        """Derive the job's status from its object."""

    def running_since(self, _job: Mapping[str, Any], /) -> datetime | None:
        """Return the start of the job's current run; None if it has not started or does not report it."""
        return None

    def due_at(self, _job: Mapping[str, Any], /) -> datetime | None:
        """Return the end of the job's own deadline, if its operator may miss it; None if there is none."""
        return None

    def least(self, _job: Mapping[str, Any], /) -> int | None:
        """Return the number of replicas with which an elastic job trains; None for all."""
        return None

    @abstractmethod
    def replicas(self, manifest: Mapping[str, Any], /) -> tuple[Replica, ...]:
        """Return all replicas, rank 0 first."""

    def unranked(self, _job: Mapping[str, Any], /) -> Mapping[str, str]:
        """Return the replicas without a rank, which prepare the others' data: name for people → replica name."""
        return {}

    def doubt(self, _job: Mapping[str, Any], /) -> str:
        """Return what the job may lack because its runtime could not be read; "" for nothing."""
        return ""

    def is_restarted(self, job: Mapping[str, Any], replica: str, /) -> bool:
        """Return whether the operator may restart the failed replica; False if the job no longer has it."""
        known = {each.name: each.is_restarted for each in self.replicas(job)}
        return known.get(replica, replica in self.unranked(job).values())

    def stops_by_itself(self, _job: Mapping[str, Any], /) -> bool:
        """Return whether the operator stops the remaining pods when the job ends."""
        return True

    def suspended(self, *, suspend: bool) -> Manifest:
        """Return the patch that suspends or resumes a job."""
        return {"spec": pod_template.with_value({}, places(TrainingJob, self.KIND)["suspend"].path, suspend)}

    def expiring(self, _job: Mapping[str, Any], /) -> Manifest | None:
        """Return the patch that sets an ended job's TTL; None if it has one, or cannot have one."""
        return None

    def expires(self, _job: Mapping[str, Any], /) -> bool:
        """Return whether the operator deletes the job's object some time after its end."""
        return False

    def is_older(self, _job: Mapping[str, Any], /) -> bool:
        """Return whether the object belongs to an older operator, which labels pods differently."""
        return False

    def pod_selector(self, name: str = "", /, *, older: bool = False) -> str:
        """Return the label selector of one job's pods or, without a name, of all jobs' pods.

        Args:
            name: the job's name.
            older: select by the older operator's label, if there is one.
        """
        label = (older and self.OLD_POD_LABEL) or self.POD_LABEL
        return f"{label}={name}" if name else label

    def owner_of(self, pod: Mapping[str, Any], /) -> PodOwner:
        """Return the job that the pod belongs to."""
        return owner_in(pod, self.KIND)

    def replica_of(self, pod: Mapping[str, Any], /) -> str:
        """Return the name of the pod's replica, as far as the pod shows it; see `kinds.replica_of`."""
        return str(pod["metadata"]["name"])

    def replica_named(self, pod: str, /) -> str:
        """Return the name of the replica whose pod has this name."""
        return pod

    def reported(self, _job: Mapping[str, Any], /) -> Reported:
        """Return the replica states in the object's status, which outlive the pods; most kinds report none."""
        return Reported()

    def controllers(self, _job: Mapping[str, Any], /) -> Sequence[tuple[str, str]]:
        """Return kind and name of each object between a job and its pods; their events explain missing pods."""
        return ()

    @abstractmethod
    def templates(self, manifest: Mapping[str, Any], /) -> Iterable[Mapping[str, Any]]:
        """Return the templates of all roles, rank 0's first, as far as the job's object defines them."""

    def rank0_template(self, manifest: Mapping[str, Any], /) -> Mapping[str, Any]:
        """Return the template of rank 0's pod, as far as the job's object defines it."""
        return next(iter(self.templates(manifest)), template_in({}))

    @abstractmethod
    def priority(self, manifest: Mapping[str, Any], /) -> str:
        """Return the priority class or number; "" if the object has none."""


# --- rendering


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
    """Return the manifest without the API server's fields, and without what this package noted about another job."""
    meta = {name: value for name, value in manifest["metadata"].items() if name not in _SERVER_SET}
    if isinstance(annotations := meta.get("annotations"), Mapping):
        meta["annotations"] = {key: value for key, value in annotations.items() if not _is_of_another_job(key)}
    return {**{name: value for name, value in manifest.items() if name != "status"}, "metadata": meta}


def _is_of_another_job(annotation: str) -> bool:
    return annotation.startswith(f"{PREFIX}/") and annotation not in (TENSORBOARD_ANNOTATION, CODE_ANNOTATION)


def check_env(job: TrainingJob, reserved: Collection[str], *, by: str) -> None:
    """Reject variables that the operator would silently replace: it appends its own after the user's.

    Raises:
        InvalidSpec: `env` has one of these variables.
    """
    for prefix, owner in (("", job), ("master.", job.master), ("worker.", job.worker)):
        for variable in (owner.env if owner else None) or ():
            if variable.name in reserved:
                raise InvalidSpec.at(f"{prefix}env.{variable.name}", f"{by} sets it in every pod; leave it out")


def with_name(manifest: Manifest, attempt: Attempt, *, longest: int | None = None) -> Manifest:
    """Return the manifest with the name and the namespace of one attempt.

    Args:
        manifest: the object.
        attempt: the attempt; its job's name and namespace override the manifest's.
        longest: maximum length of the name. None: MAX_NAME if it is generated.

    Raises:
        InvalidSpec: neither the job nor its manifest has a name, or the name or the namespace is invalid.
    """
    meta, job = manifest["metadata"], attempt.job
    stem = _stem(meta) if job.name is None else job.name
    field = "manifest.metadata.name" if job.name is None else "name"
    check_name(stem, field=field)
    if attempt.exact_name and longest is not None:
        check_name(stem, field=field, max_length=longest)
    longest = longest or MAX_NAME
    name = stem if attempt.exact_name else object_name(stem, attempt.owner, attempt.number, longest=longest)
    namespace = job.namespace or meta.get("namespace") or DEFAULT_NAMESPACE
    dns_label("namespace" if job.namespace else "manifest.metadata.namespace", namespace)
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

    def changed(each: Pods) -> Manifest:
        if source.folder:
            return code.with_folder(each.template, source, container=each.container)
        return code.with_code(each.template, source, image=image, container=each.container)

    return [replace(each, template=changed(each)) for each in pods]


def assembled(
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
        InvalidSpec: an output, or TensorBoard's folder, is on no claim, or a label is reserved.
    """
    job, installation, meta = attempt.job, attempt.installation, requested["metadata"]
    container, requested = pods[0].container, _labelled(requested, "metadata", meta["name"], attempt)
    labelled = [_labelled(each.template, f"{each.role}.template.metadata", meta["name"], attempt) for each in pods]
    templates = _with_output_mounts(labelled, job, container=container)
    outputs = resolve_outputs(templates[0], job, container=container)
    tensorboard = _planned(job, templates[0], outputs, container=container, image=installation.tensorboard_image)
    by_key = {each.key: template for each, template in zip(pods, templates, strict=True)}

    sealed, secret = code.hidden(by_key, job.code, secret=code.secret_name(meta["name"]), namespace=meta["namespace"])
    of_any_attempt, _ = code.hidden(by_key, job.code, secret="code", namespace="")  # noqa: S106 - a name
    bare = put_back(requested, [{"spec": each["spec"]} for each in of_any_attempt.values()])
    digest = spec_hash({"spec": bare["spec"], "outputs": asdict(outputs)})
    own = {name: literal(value) for name, value in attempt.variables.items()}
    variables = {ATTEMPT_ENV: str(attempt.number), **_output_variables(outputs), **own}
    marked = [pod_template.with_leading_env(sealed[each.key], variables, container=each.container) for each in pods]
    whole = [
        _changed(finish(template), each.first, meta["namespace"], installation.change_pod)
        for each, template in zip(pods, marked, strict=True)
    ]
    annotations = _annotations(attempt, digest, outputs, tensorboard)
    manifest = pod_template.with_metadata(put_back(requested, whole), labels={}, annotations=annotations)
    return Rendered(
        manifest=_owned(manifest, attempt.owner),
        outputs=outputs,
        spec_hash=digest,
        changes=code.left_out(job.code),
        secret=secret,
    )


def _annotations(
    attempt: Attempt, digest: str, outputs: ResolvedOutputs, tensorboard: TensorBoardPlan | None
) -> dict[str, str]:
    return {
        OWNER_ANNOTATION: owner_annotation(attempt.owner, attempt.number),
        SPEC_HASH_ANNOTATION: digest,
        OUTPUTS_ANNOTATION: json.dumps(asdict(outputs)),
        **(tensorboard.annotation if tensorboard else {}),
        **code.annotation(attempt.job.code),
    }


def _labelled(part: Manifest, path: str, name: str, attempt: Attempt) -> Manifest:
    """Return the job or a pod template with the owner's labels, and with those of the installation's template.

    Raises:
        InvalidSpec: the labels are no map, or one of the user's is one by which jobs and pods are found.
    """
    meta, under = part.get("metadata") or {}, attempt.installation.template
    pod_template.check_shape(path, meta, {"labels": Mapping, "annotations": Mapping})
    stale = labels_of_rendered((attempt.job.manifest or {}).get("metadata") or {})
    given = {**((under and under.labels) or {}), **(meta.get("labels") or {})}
    given = {key: value for key, value in given.items() if (key, value) not in stale.items()}
    ours = owner_labels(name, attempt.owner, attempt.number)
    labels = with_owner_labels(given, ours, field_of=lambda key: _label_field(attempt, path, key))
    return {**part, "metadata": {**meta, "labels": labels}}


def _label_field(attempt: Attempt, path: str, key: str) -> str:
    """Return the field that gives a label: a typed one, the installation's template, or the metadata at the path."""
    for layer, place in ((attempt.job, "labels"), (attempt.installation.template, "job_template.labels")):
        if layer is not None and key in (layer.labels or {}):
            return f"{place}.{key}"
    return f"{path}.labels.{key}"


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


def _with_output_mounts(templates: Sequence[Manifest], job: TrainingJob, *, container: str) -> list[Manifest]:
    """Return the templates, rank 0's first, with unmounted claims of `pvc://` outputs mounted below MOUNT_ROOT."""
    mounted = list(templates)
    for name in _ENV:
        text = getattr(job, name)
        if text is None or not text.startswith(SCHEME):
            continue
        address = PvcAddress.parse(text, field=name)
        if mount_for(address, pod_template.mounts_of(mounted[0], container=container)) is None:
            mounted = _with_claim(mounted, address.claim, container)
    return mounted


def resolve_outputs(template: Mapping[str, Any], job: TrainingJob, *, container: str) -> ResolvedOutputs:
    """Resolve the job's declared outputs in the claims that rank 0 mounts.

    Raises:
        InvalidSpec: an output is on no claim, or on a claim that is mounted read-only.
    """
    declared = {field: text for field in _ENV if (text := getattr(job, field)) is not None}
    resolved = {field: _resolved(template, text, field=field, container=container) for field, text in declared.items()}
    return ResolvedOutputs(**resolved)


def _resolved(
    template: Mapping[str, Any], text: str, *, field: str, container: str, reads: bool = False
) -> ResolvedOutput:
    """Resolve an address or path in the claims that the container mounts; `reads` as for `outputs.contract.resolve`.

    Raises:
        InvalidSpec: it is on no claim, hidden by another mount, or cannot be used there.
    """
    mounts = pod_template.mounts_of(template, container=container)
    working_dir = pod_template.find_container(template, container).get("workingDir")
    return resolve(text, field=field, mounts=mounts, working_dir=working_dir, reads=reads)


def _output_variables(outputs: ResolvedOutputs) -> dict[str, str]:
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
    return [normal_path(mount["mountPath"]) for mount in pod_template.volume_mounts(template, container=container)]


def _planned(
    job: TrainingJob, template: Mapping[str, Any], outputs: ResolvedOutputs, *, container: str, image: str
) -> TensorBoardPlan | None:
    """Return the job's TensorBoard, by default of `tfevents` and with this image; None if none is requested.

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
        raise InvalidSpec.at("tensorboard", "set `tfevents` or `logdir`, too: the folder that it shows")
    plan = TensorBoardPlan(claim=claim, path=path, image=requested.image or image)
    return replace(plan, service_type=requested.service_type) if requested.service_type else plan


def _folder(text: str, template: Mapping[str, Any], container: str) -> tuple[str, str]:
    """Return the folder's claim and path; an address needs no mount, because TensorBoard's pod has its own."""
    if text.startswith(SCHEME):
        address = PvcAddress.parse(text, field="tensorboard.logdir", or_root=True)
        return address.claim, address.path
    folder = _resolved(template, text, field="tensorboard.logdir", container=container, reads=True)
    return folder.claim, folder.path
