"""TrainJob of `trainer.kubeflow.org/v1alpha1`, as run by Kubeflow Trainer 2.0 to 2.3, on top of JobSet.

None of its three conditions shows that the job runs. A pod's name is `JOB-STEP-0-INDEX-xxxxx`, and the pod that
replaces it has the same index: the replica's name is all but the last part. `trainer_steps` says which step trains.

The fields of the API change with every minor release:

    version   what can be changed                  where
    -------   ----------------------------------   --------------------------------------------------------------------
    2.3       all of `PATCHABLE`                   `runtimePatches[].trainingRuntimeSpec.template.spec.replicatedJobs[]`
    2.2       no termination grace period          the same; the server refuses a field that it does not know
    2.1       and no security contexts             `podTemplateOverrides[]`, with `metadata` and `spec`
    2.0       and no metadata, affinity, secrets   `podSpecOverrides[]`; labels and annotations are in the job's spec

Jobs are rendered in the newest version; `converted_for` converts them for an older server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.identity import MANAGED_LABEL
from ptjob_provider.core.in_pod.sync_code import CONTAINER as SYNC_CONTAINER
from ptjob_provider.core.kinds import code, pod_template
from ptjob_provider.core.kinds.kind import (
    Kind,
    PodOwner,
    Pods,
    assembled,
    check_env,
    numbered,
    status_of,
    true_conditions,
    with_name,
    without_server_fields,
)
from ptjob_provider.core.kinds.pod_template import (
    POD_SHAPE,
    Shape,
    check_shape,
    laid_over,
    placed,
    requested_template,
)
from ptjob_provider.core.kinds.queue import label_of
from ptjob_provider.core.kinds.trainer_steps import (
    INDEX,
    OF_CLUSTER,
    OF_NAMESPACE,
    PATCHES,
    RUNTIMES,
    STEP,
    longest_name,
    others_of,
    patch_of,
    pod_template_of,
    rank_variables,
    replicated_jobs,
    steps_of,
    trainer_step,
    with_replicated_jobs,
)
from ptjob_provider.core.spec import TrainingJob
from ptjob_provider.core.spec.places import ONLY_RUNTIME, field_at, refusals
from ptjob_provider.core.status import JobPhase, JobStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kinds.kind import Attempt, Rendered, Replica
    from ptjob_provider.core.spec.code import CodeSource

KIND = "TrainJob"
API_VERSION = "trainer.kubeflow.org/v1alpha1"

DEFAULT_RUNTIME = "torch-distributed"

_RESERVED = {"PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"}

MANAGER = "ptjob-provider/job"

_QUEUES_MANAGER = "kueue.x-k8s.io/manager"

TEMPLATES, PODS = "podTemplateOverrides", "podSpecOverrides"

NEWEST = "2.2 or newer"
"""Versions with `runtimePatches`: they differ only in what a patch may contain, which the CRD does not show."""

PATCHABLE = frozenset(
    {"serviceAccountName", "volumes", "initContainers", "containers", "imagePullSecrets", "securityContext"}
    | {"nodeSelector", "affinity", "tolerations", "schedulingGates", "terminationGracePeriodSeconds"}
)
"""Parts of a pod's spec that a job can patch; only the runtime can define the others."""

PATCHABLE_OF_CONTAINER = frozenset({"name", "env", "volumeMounts", "securityContext"})

_SINCE_2_2 = frozenset({"securityContext", "terminationGracePeriodSeconds"})
_SINCE_2_1 = _SINCE_2_2 | {"affinity", "imagePullSecrets"}

CONTAINER = STEP

_TRAINER = {"image": "image", "command": "command", "args": "args", "env": "env", "resources": "resourcesPerNode"}
"""Fields of the training container, and their places in a TrainJob."""

_CONFIGURED = ("name", "env", "volumeMounts")
_ONE_MOUNT = "allowed: one mount of each volume or claim in a container of a TrainJob; use folders of that mount"
"""`listMapKey` of `volumeMounts` in Trainer's CRD; a pod with two volumes of one claim never starts."""


_DOUBT = (
    "the launcher is followed, but the runtime could not be read before the job was made (`ptjob doctor` names the "
    "right): claims, labels and placement are those of the pods of `node` alone, RANK and WORLD_SIZE are set as "
    "without mpirun, and the launcher is counted as one of the nodes"
)
"""Consequence of a runtime that may not be listed, for a job with a launcher."""

_DECISIONS = (
    ("Failed", JobPhase.FAILED),
    ("Complete", JobPhase.SUCCEEDED),
    ("Suspended", JobPhase.SUSPENDED),
)
"""Conditions and their phases; the first true condition decides. A resumed job keeps `Suspended`, with False."""

_DEADLINE_EXCEEDED = "DeadlineExceeded"
"""The only reason of `Failed` that stays beside `Complete`: the JobSet may complete while Trainer deletes it because of
the deadline. Trainer checks no deadline of a complete job. It sets `Failed` with another reason only after `Complete`,
and removes it again."""


_JOB = "jobset.sigs.k8s.io/jobset-name"
_STEP = "jobset.sigs.k8s.io/replicatedjob-name"
_JOB_INDEX = "jobset.sigs.k8s.io/job-index"


class TrainJob(Kind):
    """TrainJob of `trainer.kubeflow.org/v1alpha1`, as run by Kubeflow Trainer 2.0 to 2.3, on top of JobSet."""

    KIND = KIND
    API_VERSION = API_VERSION
    PLURAL = "trainjobs"
    OPERATOR = "Kubeflow Trainer"
    CONTAINER = CONTAINER
    HAS_LABELLED_PODS = False
    POD_LABEL = _JOB
    OPERATORS_LABELS = frozenset({"jobset.sigs.k8s.io/", "batch.kubernetes.io/", "job-name", "controller-uid"})
    DELETION = "Background"
    """Not `Foreground`: Trainer recreates a JobSet that is deleted while its TrainJob still exists."""

    def read_status(self, job: Mapping[str, Any]) -> JobStatus:
        """Derive the job's status from its object.

        If no condition is true, the job is running while all pods of the runtime's job are ready or have succeeded, and
        pending otherwise, also in a crash loop. Its start, and that of its deadline, is when it was created or resumed.
        """
        status, true = job.get("status") or {}, true_conditions(job)
        conditions = {each["type"]: each for each in status.get("conditions") or []}
        if "Complete" in true and true.get("Failed", {}).get("reason") != _DEADLINE_EXCEEDED:
            true.pop("Failed", None)
        name, phase = next((each for each in _DECISIONS if each[0] in true), ("", JobPhase.PENDING))
        if not name and _is_ready(status, trainer_step(job)):
            phase = JobPhase.RUNNING
        resumed = (conditions.get("Suspended") or {}).get("lastTransitionTime")
        started = job["metadata"].get("creationTimestamp") if "Suspended" not in conditions else resumed
        return status_of(job, phase, true.get(name, {}), started=None if "Suspended" in true else started)

    def replicas(self, manifest: Mapping[str, Any]) -> tuple[Replica, ...]:
        """Return all nodes of the job; one if the job leaves their number to the runtime."""
        template = self.rank0_template(manifest)
        pods = steps_of(manifest).items()
        roles = [(f"{step}-0", {"replicas": number, "template": template}) for step, number in pods]
        replicas = numbered(manifest["metadata"]["name"], roles)
        return tuple(replace(each, role=each.role.removesuffix("-0")) for each in replicas)

    def unranked(self, job: Mapping[str, Any]) -> dict[str, str]:
        """Return the first pod of each step that does not train, by the step's name; initializers have only one."""
        return {step: f"{job['metadata']['name']}-{step}-0-0" for step in others_of(job)}

    def doubt(self, job: Mapping[str, Any]) -> str:
        """Return that a job of ours was not fitted to its launcher, which only its status shows."""
        is_ours = MANAGED_LABEL in (job["metadata"].get("labels") or {})
        return _DOUBT if is_ours and trainer_step(job) != trainer_step({**job, "status": {}}) else ""

    def owner_of(self, pod: Mapping[str, Any]) -> PodOwner:
        """Return the pod's job by its name only: the pod's owner is a Job of a JobSet."""
        return PodOwner(name=str(_labels(pod).get(_JOB) or ""))

    def replica_of(self, pod: Mapping[str, Any]) -> str:
        """Return the pod's replica name; a pod without an index is a replica of its own."""
        labels = _labels(pod)
        if not labels.get(INDEX) or not labels.get(_JOB):
            return str(pod["metadata"]["name"])
        return "-".join([labels[_JOB], labels.get(_STEP) or STEP, labels.get(_JOB_INDEX) or "0", labels[INDEX]])

    def replica_named(self, pod: str) -> str:
        """Return the replica's name: the pod's name without the random letters."""
        return pod.rpartition("-")[0] or pod

    def controllers(self, job: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
        """Return the JobSet that Trainer creates and the Job of each step, which creates the pods."""
        name, steps = job["metadata"]["name"], (*steps_of(job), *others_of(job))
        return (("JobSet", name), *(("Job", f"{name}-{step}-0") for step in steps))

    def priority(self, manifest: Mapping[str, Any]) -> str:
        """Return the pods' priority class, as far as the job changes the runtime's."""
        return str((self.rank0_template(manifest).get("spec") or {}).get("priorityClassName") or "")

    def templates(self, manifest: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """Yield the pod template of the step that trains, as far as the job changes the runtime's."""
        yield template_of(manifest["spec"], trainer_step(manifest))

    def build(self, attempt: Attempt) -> Rendered:
        """Return the TrainJob of one attempt, in the newest version of its API.

        Raises:
            InvalidSpec: a TrainJob does not support a field, or an output is on no claim.
        """
        job = attempt.job
        check_env(job, _RESERVED, by="Trainer")
        requested = _requested(job, attempt.installation.template)
        requested = with_name(requested, attempt, longest=_longest_name(requested))
        return assembled(
            requested, [_pods(requested, attempt)], attempt, put_back=_with_template, finish=_rank_added(requested, job)
        )

    def lacking(self, given: Mapping[str, Any]) -> dict[str, str]:
        """Return the fields without a place in a TrainJob."""
        allowed = {"clean_pod_policy"} if given.get("clean_pod_policy") == "Running" else set()
        if "code" in given:
            allowed.add("working_dir")  # the parent of the code's folder
        return {name: why for name, why in super().lacking(given).items() if name not in allowed}

    def converted_for(self, manifest: Manifest, fields: frozenset[str]) -> Manifest:
        """Return the job converted for a server with these fields in a TrainJob's spec.

        Raises:
            InvalidSpec: a part has no equivalent; the text names the field.
        """
        spec = manifest["spec"]
        if PATCHES in fields or not fields & {TEMPLATES, PODS}:
            return manifest
        if spec.get("activeDeadlineSeconds") is not None:
            raise InvalidSpec.at(
                "active_deadline_seconds", "this cluster's Trainer is older than 2.2 and has no deadlines"
            )
        where = TEMPLATES if TEMPLATES in fields else PODS
        kept = {name: part for name, part in spec.items() if name != PATCHES}
        overrides = [_override(entry, where) for patch in spec.get(PATCHES) or () for entry in replicated_jobs(patch)]
        if where == PODS:
            kept |= _metadata_of(spec)
        return {**manifest, "spec": kept | ({where: overrides} if overrides else {})}


def _requested(job: TrainingJob, under: TrainingJob | None) -> Manifest:
    """Return the requested object without its pods."""
    manifest = _skeleton(job) if job.manifest is None else _given(job.manifest)
    spec = manifest["spec"]
    processes = {} if job.nproc_per_node is None else _processes(job.nproc_per_node)
    runtime = reference(job.runtime or (under.runtime if under and job.manifest is None else None))
    changes = {"trainer": {**(spec.get("trainer") or {}), **processes}, **({"runtimeRef": runtime} if runtime else {})}
    whole = {**manifest, "spec": placed(KIND, {**spec, **changes}, job)}
    labels = {**(job.labels or {}), **label_of(job)}
    return pod_template.with_metadata(whole, labels=labels, annotations=job.annotations or {})


def _skeleton(job: TrainingJob) -> Manifest:
    spec = {"runtimeRef": {"name": DEFAULT_RUNTIME}, "trainer": {"numNodes": job.pod_count}}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {}, "spec": spec}


_STEP_PATCH = {"name!": str, "template": {"spec": {"template": {"metadata": Mapping, "spec": Mapping}}}}
_SHAPE: Shape = {
    "metadata": {"labels": Mapping, "annotations": Mapping},
    "spec!": {
        "runtimeRef!": Mapping,
        "initializer": Mapping,
        "trainer": {"numNodes": int},
        PATCHES: [{"trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [_STEP_PATCH]}}}}],
    },
}


def _given(given: Manifest) -> Manifest:
    check_shape("", given, _SHAPE)
    spec = given["spec"]
    check_newest(spec)
    whole = {**given, "metadata": given.get("metadata") or {}, "spec": without_kueue_patch(spec)}
    return without_server_fields(whole)


def _processes(number: int | str) -> Manifest:
    if number == "auto":
        return {}
    if isinstance(number, str):
        raise InvalidSpec.of("nproc_per_node", number, "allowed: a number, or auto; Trainer counts by itself since 2.2")
    return {"numProcPerNode": number}


def _longest_name(requested: Manifest) -> int:
    initializers = {f"{part}-initializer": 1 for part in requested["spec"].get("initializer") or ()}
    return longest_name({**initializers, **steps_of(requested)})


def _pods(requested: Manifest, attempt: Attempt) -> Pods:
    """Return the pods of the only role: all nodes are alike."""
    name, step = requested["metadata"]["name"], trainer_step(requested)
    own = template_of(requested["spec"], step)
    check_shape("spec", own["spec"], POD_SHAPE)
    template = requested_template(own, attempt.job, attempt.installation.template, role="worker", container=CONTAINER)
    template = with_code(template, attempt.job.code, has_own_runtime=_is_custom(requested["spec"]["runtimeRef"]))
    return Pods(role=STEP, key=STEP, first=f"{name}-{step}-0-0", container=CONTAINER, template=template)


def _with_template(requested: Manifest, templates: Sequence[Manifest]) -> Manifest:
    [template] = templates
    return {**requested, "spec": with_template(requested["spec"], template, trainer_step(requested))}


def _rank_added(requested: Manifest, job: TrainingJob) -> Callable[[Manifest], Manifest]:
    """Return a function that adds the rank's variables to a template; it changes nothing for a user's manifest."""
    if job.manifest is not None:
        return lambda template: template
    return lambda template: pod_template.map_container(template, CONTAINER, lambda each: _with_rank(each, requested))


def _is_custom(runtime: Mapping[str, Any]) -> bool:
    """Return whether the runtime is the user's, not Trainer's default; a namespace's always is."""
    return runtime.get("kind") == "TrainingRuntime" or runtime.get("name") != DEFAULT_RUNTIME


def with_code(template: Manifest, source: CodeSource | None, *, has_own_runtime: bool) -> Manifest:
    """Return the template with the runtime's init container configured, and the code in the training container.

    A folder needs no init container. For other sources, the runtime defines the container's user, image and resources,
    and the working directory: the code is in `code/<repository>` below `DEFAULT_WORKING_DIR`.

    Raises:
        InvalidSpec: the runtime is Trainer's default, which has no such container, or the source names an image.
    """
    if source is None:
        return template
    if source.folder:
        whole = code.with_folder(template, source, container=CONTAINER, in_command=True)
        return pod_template.map_container(whole, CONTAINER, _without_working_dir)
    if not has_own_runtime:
        raise InvalidSpec.at(
            "code",
            f"a TrainJob can add no init container; name a runtime that has one called {SYNC_CONTAINER} with "
            "`runtime`, or have the code in the image",
        )
    if source.image:
        raise InvalidSpec.at("code.image", f"the runtime's init container {SYNC_CONTAINER} has it; leave it out")
    whole = code.with_code(template, source, image="", container=CONTAINER)
    pod = whole["spec"]
    inits = [_only_configured(each) for each in pod["initContainers"]]
    return pod_template.map_container(
        {**whole, "spec": {**pod, "initContainers": inits}}, CONTAINER, _without_working_dir
    )


def _only_configured(container: Mapping[str, Any]) -> Manifest:
    if container["name"] != SYNC_CONTAINER:
        return dict(container)
    return {name: container[name] for name in _CONFIGURED}


def _without_working_dir(container: Manifest) -> Manifest:
    return {name: part for name, part in container.items() if name != "workingDir"}


def _with_rank(container: Manifest, requested: Mapping[str, Any]) -> Manifest:
    """Return the training container with the variables of `env://` that the job does not set itself."""
    given = container.get("env") or []
    names = {each["name"] for each in given}
    variables = rank_variables(requested, trainer_step(requested))
    return {**container, "env": [*(each for each in variables if each["name"] not in names), *given]}


def template_of(spec: Mapping[str, Any], step: str = STEP) -> Manifest:
    """Return the pod template of a step in a job's spec, which must be of the newest version."""
    trainer = spec.get("trainer") or {}
    own = {name: trainer[place] for name, place in _TRAINER.items() if trainer.get(place) is not None}
    template: Manifest = {"spec": {"containers": [{"name": CONTAINER, **own}]}}
    for patch in spec.get(PATCHES) or ():
        for entry in replicated_jobs(patch):
            if entry.get("name") == step:
                template = laid_over(template, pod_template_of(entry))
    return template


def with_template(spec: Mapping[str, Any], template: Mapping[str, Any], step: str) -> Manifest:
    """Return a job's spec with exactly the template's settings of the step's pods.

    The template replaces the first patch of the pods; further patches of the pods are removed.

    Raises:
        InvalidSpec: a TrainJob does not support a part of it; the text names the field.
    """
    pod = template["spec"]
    _check_pod(pod)
    own = next(each for each in pod["containers"] if each.get("name") == CONTAINER)
    typed = {place: own[name] for name, place in _TRAINER.items() if own.get(name) is not None}
    kept = {name: part for name, part in (spec.get("trainer") or {}).items() if name not in _TRAINER.values()}
    patch = _patch(template, pod)
    whole = {**spec, "trainer": {**kept, **typed}}
    patches = _patches(spec.get(PATCHES) or [], patch, step)
    return {**whole, PATCHES: patches} if patches else {name: whole[name] for name in whole if name != PATCHES}


def _patch(template: Mapping[str, Any], pod: Mapping[str, Any]) -> Manifest:
    containers = [{name: each[name] for name in each if name not in _TRAINER} for each in pod["containers"]]
    changed = [each for each in containers if set(each) != {"name"}]
    spec = {name: part for name, part in pod.items() if name != "containers"}
    parts = {"metadata": template.get("metadata"), "spec": spec | ({"containers": changed} if changed else {})}
    return {name: part for name, part in parts.items() if part}


def _patches(given: list[Manifest], patch: Manifest, step: str) -> list[Manifest]:
    if not patch:
        return given
    patches, is_placed = [], False
    for each in given:
        entries = replicated_jobs(each)
        of_pods = [entry for entry in entries if entry.get("name") == step]
        if not of_pods:
            patches.append(each)
            continue
        others = [entry for entry in entries if entry not in of_pods]
        new = [] if is_placed else [patch_of(patch, step=step)]
        patches.append(with_replicated_jobs(each, [*new, *others]))
        is_placed = True
    return (
        patches if is_placed else [*patches, with_replicated_jobs({"manager": MANAGER}, [patch_of(patch, step=step)])]
    )


def _check_pod(pod: Mapping[str, Any]) -> None:
    for name, part in pod.items():
        if name not in PATCHABLE and part is not None:
            raise _refused(name, f"pod_template.spec.{name}")
    for key in ("containers", "initContainers"):
        for index, container in enumerate(pod.get(key) or ()):
            _check_container(key, index, container)


def _check_container(key: str, index: int, container: Mapping[str, Any]) -> None:
    names = [each.get("name") for each in container.get("volumeMounts") or ()]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InvalidSpec.of("volumes", twice, _ONE_MOUNT)
    is_trainer = key == "containers" and container.get("name") == CONTAINER
    known = PATCHABLE_OF_CONTAINER | set(_TRAINER) if is_trainer else PATCHABLE_OF_CONTAINER
    for name, part in container.items():
        if name in known or part is None:
            continue
        if key == "initContainers":
            raise InvalidSpec.at(
                "init_containers", f"a TrainJob cannot add one ({container.get('name')}); {ONLY_RUNTIME}"
            )
        raise _refused(name, f"pod_template.spec.{key}[{index}].{name}")


def _refused(name: str, path: str) -> InvalidSpec:
    """Return the error about a part of the pods; it names the field that stands there, if there is one."""
    refused = refusals(TrainingJob, KIND)
    field = field_at(TrainingJob, name, "pod", "container")
    why = f"a TrainJob has no place for it; {refused.get(field, ONLY_RUNTIME)}"
    return InvalidSpec.at(field if field in refused else path, why)


def reference(text: str | None) -> Manifest | None:
    """Parse a runtime's name: `NAME` for the cluster's, `TrainingRuntime/NAME` for one of the namespace.

    Raises:
        InvalidSpec: the text is neither.
    """
    if text is None:
        return None
    kind, slash, name = text.rpartition("/")
    if slash and kind not in RUNTIMES:
        raise InvalidSpec.of("runtime", text, f"allowed: NAME, {OF_NAMESPACE}/NAME or {OF_CLUSTER}/NAME")
    return {"kind": kind, "name": name} if slash else {"name": name}


# --- versions of Trainer


def check_newest(spec: Mapping[str, Any]) -> None:
    """Check that a job's spec has no overrides of older versions.

    Raises:
        InvalidSpec: it has some; the text names the field.
    """
    for name in (TEMPLATES, PODS):
        if spec.get(name):
            raise InvalidSpec(
                f"spec.{name}: a field of Trainer before 2.2; write `{PATCHES}`, which is converted for it"
            )


def without_kueue_patch(spec: Mapping[str, Any]) -> Manifest:
    """Return a job's spec without Kueue's patch: its webhook adds one to every job, and refuses a second one."""
    kept = [patch for patch in spec.get(PATCHES) or [] if patch.get("manager") != _QUEUES_MANAGER]
    others = {name: part for name, part in spec.items() if name != PATCHES}
    return {**others, PATCHES: kept} if kept else others


def version_of(fields: Iterable[str]) -> str:
    """Return the version of a server whose TrainJobs have these fields in their spec; "" if that does not show."""
    known = {PATCHES: NEWEST, TEMPLATES: "2.1", PODS: "2.0"}
    return next((version for field, version in known.items() if field in set(fields)), "")


def _override(entry: Mapping[str, Any], where: str) -> Manifest:
    template = pod_template_of(entry)
    spec = template.get("spec") or {}
    for name in _SINCE_2_2 if where == TEMPLATES else _SINCE_2_1:
        if spec.get(name) is not None:
            raise InvalidSpec.at(name, "this cluster's Trainer is too old to change it; have the runtime say it")
    if any(container.get("name") == SYNC_CONTAINER for container in spec.get("initContainers") or ()):
        raise InvalidSpec.at("code", "this cluster's Trainer is older than 2.2; have the code in the image")
    for container in spec.get("containers") or ():
        if container.get("securityContext") is not None:
            raise InvalidSpec.at("container_security_context", "this cluster's Trainer is older than 2.2")
    target = {"targetJobs": [{"name": entry["name"]}]}
    if where == PODS:
        return {**target, **spec}
    return {**target, **{name: part for name, part in template.items() if part}}


def _metadata_of(spec: Mapping[str, Any]) -> Manifest:
    """Return the pods' labels and annotations as fields of the job's spec, where Trainer 2.0 has them.

    Those that the user has written there stay: ours are among the pods'.
    """
    meta: Manifest = {}
    for patch in spec.get(PATCHES) or ():
        for entry in replicated_jobs(patch):
            for name, part in (pod_template_of(entry).get("metadata") or {}).items():
                meta[name] = {**meta.get(name, {}), **part, **(spec.get(name) or {})}
    return meta


def _is_ready(status: Mapping[str, Any], step: str) -> bool:
    return any(
        each.get("name") == step and ((each.get("ready") or 0) > 0 or (each.get("succeeded") or 0) > 0)
        for each in status.get("jobsStatus") or ()
    )


def _labels(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    labels: Mapping[str, Any] = pod["metadata"].get("labels") or {}
    return labels
