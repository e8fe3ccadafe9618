"""Define `TrainingJob`, the user's specification of one training job, and its parts; `kinds` renders it.

Every field is None by default, so that a manifest and typed fields can be combined: a set field overrides its place in
the manifest, a field that is None leaves that place unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from ptjob_provider.core.errors import InvalidSpec, one_of
from ptjob_provider.core.identity import check_name
from ptjob_provider.core.manifest import KINDS, load_manifest
from ptjob_provider.core.spec import parsers, pods
from ptjob_provider.core.spec.code import CodeSource
from ptjob_provider.core.spec.parsers import names, parse_into, setting
from ptjob_provider.core.spec.places import ONLY_RUNTIME, Place, Refused, by_function
from ptjob_provider.core.spec.pods import (
    DEFAULT_GPU,
    PodVolume,
    Resources,
    VolumeMount,
    absolute_path,
    cpu_quantity,
    device_name,
    memory_quantity,
    shared_memory_size,
    volume_mounts,
    volumes,
)
from ptjob_provider.core.wire import to_wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.spec.pods import EnvVar


_MAX_PORT = 65535

_ONLY_RUNTIME = Refused(ONLY_RUNTIME)
_ALIKE = Refused("all nodes of a TrainJob are alike")
_NO_TTL = Refused("it has no time to live; see on_finish_action (`ptjob run --on-finish-action`)")
_LEAVE_OUT = Refused("leave it out")
_CLEAN_UP = {"Running": "Unfinished", "All": "All", "None": "None"}
"""`clean_pod_policy` → T9k's `cleanUpPolicy`."""


def _pairs(settings: Mapping[str, str]) -> list[Manifest]:
    return [{"key": key, "value": value} for key, value in settings.items()]


def _named(names: Iterable[str]) -> list[Manifest]:
    return [{"name": name} for name in names]


@dataclass(frozen=True, kw_only=True)
class ElasticPolicy:
    """Settings of an elastic job; a setting that is None is left to the operator."""

    min_replicas: int | None = setting(
        parsers.integer(1, parsers.MAX_PODS),
        PyTorchJob="elasticPolicy.minReplicas",
        PyTorchTrainingJob="elastic.minReplicas",
    )
    """Minimum number of pods. Default of the operator: max_replicas."""
    max_replicas: int | None = setting(
        parsers.integer(1, parsers.MAX_PODS),
        PyTorchJob="elasticPolicy.maxReplicas",
        PyTorchTrainingJob="elastic.maxReplicas",
    )
    """Maximum number of pods. Default of the operator: min_replicas."""
    max_restarts: int | None = setting(
        parsers.integer(0), PyTorchJob="elasticPolicy.maxRestarts", PyTorchTrainingJob="torchrunConfig.maxRestarts"
    )
    """Number of times that torchrun restarts the ranks before it gives up. Default of torchrun: 0."""
    rdzv_backend: str | None = setting(
        parsers.word("c10d", "etcd", "etcd-v2"),
        PyTorchJob="elasticPolicy.rdzvBackend",
        PyTorchTrainingJob="torchrunConfig.rdzvBackend",
    )
    """Back-end of the rendezvous, at which the ranks find each other. Default of the operator: c10d, which needs no
    service."""
    rdzv_host: str | None = setting(parsers.text, PyTorchJob="elasticPolicy.rdzvHost", PyTorchTrainingJob=_LEAVE_OUT)
    """Host of the rendezvous. Default of the operator: worker 0."""
    rdzv_port: int | None = setting(
        parsers.integer(1, _MAX_PORT), PyTorchJob="elasticPolicy.rdzvPort", PyTorchTrainingJob=_LEAVE_OUT
    )
    """Port of the rendezvous. Default of the operator: 23456."""
    rdzv_id: str | None = setting(parsers.text, PyTorchJob="elasticPolicy.rdzvId", PyTorchTrainingJob=_LEAVE_OUT)
    """Name of the rendezvous."""
    rdzv_conf: Mapping[str, str] | None = setting(
        parsers.text_map, PyTorchJob=Place("elasticPolicy.rdzvConf", _pairs), PyTorchTrainingJob=_LEAVE_OUT
    )
    """Further settings of the rendezvous back-end, such as `{"timeout": "900"}`."""
    standalone: bool | None = setting(
        parsers.boolean, PyTorchJob="elasticPolicy.standalone", PyTorchTrainingJob=_LEAVE_OUT
    )
    """True if each pod is a training of its own."""

    @classmethod
    def parse(cls, field: str, value: Any) -> ElasticPolicy:
        """Parse a map of these settings.

        Raises:
            InvalidSpec: a setting is unknown or invalid, or min_replicas is above max_replicas.
        """
        policy = parse_into(cls, parsers.mapping(field, value), prefix=f"{field}.")
        if policy.min_replicas and policy.max_replicas and policy.min_replicas > policy.max_replicas:
            raise InvalidSpec.of(
                f"{field}.min_replicas", policy.min_replicas, f"allowed: at most max_replicas, {policy.max_replicas}"
            )
        return policy

    @property
    def default_workers(self) -> int:
        """Return the default number of pods: max_replicas, else min_replicas, else one."""
        return self.max_replicas or self.min_replicas or 1

    def check_workers(self, workers: int) -> None:
        """Check that the training can start with this number of pods.

        Raises:
            InvalidSpec: the training would wait forever for more pods, or refuse some of them.
        """
        least, most = self.min_replicas, self.max_replicas
        lowest, highest = least or most or workers, most or least or workers
        if not lowest <= workers <= highest:
            allowed = f"allowed: {lowest} (`min_replicas`) to {highest} (`max_replicas`)"
            raise InvalidSpec.of("workers", workers, allowed)


@dataclass(frozen=True, kw_only=True)
class TensorBoard:
    """Settings of TensorBoard; each field documents its default."""

    logdir: str | None = setting(parsers.text)
    """Folder of the events: `pvc://claim/path`, or the path as the program sees it. None: `tfevents`."""
    image: str | None = setting(parsers.text)
    """Image that runs it, with TensorBoard and `python3`. None: the installation's, else the job's own image."""
    service_type: str | None = setting(parsers.word("NodePort", "ClusterIP"))
    """Type of its Service: `NodePort` opens it to everybody who reaches a node, `ClusterIP` to pods of the cluster
    only. None: `NodePort`."""

    @classmethod
    def parse(cls, field: str, value: Any) -> TensorBoard | None:
        """Parse true, false, or a map of these parts; return None for false.

        Raises:
            InvalidSpec: the value is none of these, or a part is unknown or invalid.
        """
        if isinstance(value, dict):
            return parse_into(cls, value, prefix=f"{field}.")
        try:
            return cls() if parsers.boolean(field, value) else None
        except InvalidSpec:
            raise InvalidSpec.of(
                field, value, "allowed: true, false, or a map of logdir, image, service_type"
            ) from None


@dataclass(frozen=True, kw_only=True)
class RoleFields:
    """Fields that may differ between roles; names and rules are those of `TrainingJob`."""

    image: str | None = setting(parsers.text)
    command: tuple[str, ...] | None = setting(parsers.arguments)
    args: tuple[str, ...] | None = setting(parsers.arguments)
    env: tuple[EnvVar, ...] | None = setting(pods.environment)
    cpu: str | None = setting(cpu_quantity)
    memory: str | None = setting(memory_quantity)
    gpus: int | None = setting(parsers.integer(0))
    container_resources: Resources | None = setting(Resources.parse)
    node_selector: Mapping[str, str] | None = setting(pods.label_map)

    @classmethod
    def parse(cls, field: str, value: Any) -> RoleFields:
        """Parse a map of these fields.

        Raises:
            InvalidSpec: a field is unknown or invalid.
        """
        if isinstance(value, int):
            raise InvalidSpec.of(field, value, "allowed: a map of the fields of this role; did you mean workers?")
        return parse_into(cls, parsers.mapping(field, value), prefix=f"{field}.")

    @classmethod
    def of(cls, job: TrainingJob, own: RoleFields) -> RoleFields:
        """Return one role's fields: its own override the job's; `env` and `node_selector` are merged by name."""
        chosen = {each.name: _chosen(getattr(own, each.name), getattr(job, each.name)) for each in fields(cls)}
        if job.env is not None and own.env is not None:
            chosen["env"] = pods.merged(job.env, own.env)
        if job.node_selector is not None and own.node_selector is not None:
            chosen["node_selector"] = {**job.node_selector, **own.node_selector}
        return cls(**chosen)


def check_asked_once(fields_of: TrainingJob | RoleFields, prefix: str, *, gpu: str) -> None:
    """Check that no resource is requested in two places, one of which may be the job's and one the role's.

    Raises:
        InvalidSpec: `cpu`, `memory` or `gpus` is given as well as the same resource in `container_resources`.
    """
    for name, resource in (("cpu", "cpu"), ("memory", "memory"), ("gpus", gpu)):
        if (
            getattr(fields_of, name) is not None
            and fields_of.container_resources is not None
            and resource in fields_of.container_resources
        ):
            allowed = f"allowed: either {name} or {resource} in `container_resources`, for the job and its roles alike"
            raise InvalidSpec.of(f"{prefix}{name}", getattr(fields_of, name), allowed)


def _chosen(own: Any, common: Any) -> Any:
    return common if own is None else own


_OF_ONE_JOB = {
    *("name", "namespace", "kind", "workers", "nproc_per_node", "elastic_policy", "suspend"),
    *("command", "args", "working_dir", "code", "master", "worker"),
    *("model", "tfevents", "checkpoints", "tensorboard", "manifest"),
}


@dataclass(frozen=True, kw_only=True)
class Installation:
    """Settings that apply to every job.

    Attributes:
        template: default fields: those of each job, typed or in its manifest, override them. None: no defaults.
        change_pod: takes a pod, as a core/v1 Pod with the job's names and labels, and returns the changed pod; called
            last, once for each role. None: no change.
        sync_image: image of the sync container for jobs that name none. "": this package's.
        tensorboard_image: image of TensorBoard for jobs that name none. "": the job's own image.
        kind: kind of a job that names none, if the cluster serves it. None: the first kind that is served.
    """

    template: TrainingJob | None = None
    change_pod: Callable[[Manifest], Manifest] | None = None
    sync_image: str = ""
    tensorboard_image: str = ""
    kind: str | None = None


def job_template(values: Mapping[str, Any], *, field: str) -> TrainingJob:
    """Parse the fields of an installation's template.

    Raises:
        InvalidSpec: a field is unknown, specific to one job, or invalid.
    """
    for name in values:
        if name in _OF_ONE_JOB:
            raise InvalidSpec.at(f"{field}.{name}", "leave it to each job")
    kind, version = next(iter(KINDS.items()))  # with a manifest, even an empty one, no field is required
    try:
        return TrainingJob.parse(**values, manifest={"apiVersion": version, "kind": kind})
    except InvalidSpec as error:
        raise InvalidSpec(f"{field}.{error}") from None


Role = Literal["master", "worker"]
"""Roles of pods: `master` is rank 0's pod, `worker` are all others."""


def _name(field: str, value: Any) -> str:
    return check_name(parsers.text(field, value), field=field)


def kind_name(field: str, value: Any) -> str:
    """Parse a kind's name, in any case."""
    given = parsers.text(field, value)
    by_word = {kind.lower(): kind for kind in KINDS}
    if given.lower() not in by_word:
        raise InvalidSpec.of(field, value, one_of(KINDS, value))
    return by_word[given.lower()]


def _nproc(field: str, value: Any) -> int | str:
    if value in ("auto", "cpu", "gpu"):
        return str(value)
    try:
        return parsers.integer(1)(field, value)
    except InvalidSpec as error:
        raise InvalidSpec.of(field, value, f"{error.allowed}, or auto, cpu, gpu") from None


def _seconds(minimum: int) -> parsers.Reader[int]:
    def read(field: str, value: Any) -> int:
        given = int(value.total_seconds()) if isinstance(value, timedelta) else value
        return parsers.integer(minimum)(field, given)

    return read


def _manifest(_: str, value: Any) -> Manifest:
    return load_manifest(value)


@dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """A training job: typed fields, or a manifest, or a manifest with typed fields over it.

    Build it with `parse`, which accepts rendered templates; the constructor takes parsed values.

    Raises:
        InvalidSpec: fields exclude each other; the text names them.
    """

    name: str | None = setting(_name)
    """Readable beginning of the object's name: lower-case letters, digits and '-'. None: the manifest's name; required
    without a manifest. The object's name adds a hash of owner and attempt, so that two runs never collide."""

    namespace: str | None = setting(pods.dns_label)
    """Namespace of the job. None: the manifest's namespace, else `default`."""

    image: str | None = setting(parsers.text, container="image")
    """Container image of every replica. None: the manifest's; required without a manifest."""

    image_pull_policy: str | None = setting(
        parsers.word("Always", "IfNotPresent", "Never"), container="imagePullPolicy", TrainJob=_ONLY_RUNTIME
    )
    """Pull policy of the image. None: Kubernetes decides by its tag."""

    command: tuple[str, ...] | None = setting(parsers.arguments, container="command")
    """Program and its first arguments, as a list; it replaces the image's entrypoint. A single text is refused:
    splitting it on blanks would be a guess, and a shell might be missing in the image and would keep SIGTERM from the
    program. Write `["sh", "-c", "exec …"]` for a shell line. None: the image's entrypoint."""

    args: tuple[str, ...] | None = setting(parsers.arguments, container="args")
    """Arguments after the command or the image's entrypoint, as a list; numbers become text. None: the image's."""

    working_dir: str | None = setting(
        absolute_path,
        container="workingDir",
        TrainJob=Refused(f"{ONLY_RUNTIME}; or begin the command with sh -c 'cd … && exec …'"),
    )
    """Directory in which the program starts, as an absolute path. None: the image's."""

    workers: int | None = setting(
        parsers.integer(1, parsers.MAX_PODS),
        PyTorchJob=by_function("pytorchReplicaSpecs.*.replicas"),
        TrainJob="trainer.numNodes",
        PyTorchTrainingJob=by_function("replicaSpecs.*.replicas"),
    )
    """Number of pods, rank 0 **included**, as Arena counts: 1 is a master alone, 4 a master and three workers. None: 1,
    or as many as an elastic job can use."""

    nproc_per_node: int | str | None = setting(
        _nproc,
        PyTorchJob=Place("nprocPerNode", str),
        TrainJob=by_function("trainer.numProcPerNode"),
        PyTorchTrainingJob=by_function("torchrunConfig.procPerNode"),
    )
    """Training processes per pod, for programs that are started by torchrun: a number, or `auto`, `cpu`, `gpu` to let
    torchrun count. None: the operator's default, `auto`."""

    gpus: int | None = setting(parsers.integer(0), container=by_function("resources"))
    """GPUs per pod. None: none without a manifest. 0 removes the GPUs of a manifest."""

    gpu_resource: str | None = setting(device_name, container=by_function("resources"))
    """Resource name of the device that `gpus` counts. None: the one that the manifest requests, else
    `nvidia.com/gpu`."""

    cpu: str | None = setting(cpu_quantity, container=by_function("resources"))
    """Cores per pod (`4`, `0.5`, `500m`), as request and as limit. None: the namespace's default, else unlimited."""

    memory: str | None = setting(memory_quantity, container=by_function("resources"))
    """Bytes per pod (`16Gi`), as request and as limit, so that the pod is not killed for what other pods use. Values
    below 1Mi are refused: the unit was forgotten. None: the namespace's default, else unlimited."""

    container_resources: Resources | None = setting(Resources.parse, container=by_function("resources"))
    """`{"requests": {...}, "limits": {...}}` per pod, for requests below their limits and for other devices. A resource
    that `cpu`, `memory` or `gpus` sets as well is refused. None: only `cpu`, `memory` and `gpus`."""

    shared_memory: str | None = setting(
        shared_memory_size, pod=by_function("volumes"), container=by_function("volumeMounts")
    )
    """Size of /dev/shm (`8Gi`), which data loaders and NCCL need; the container runtime's 64 MB kill a data loader's
    workers with a bus error. It counts as the pod's memory only as far as it is used. False or `0`: the container
    runtime's size. None: `2Gi` (Arena's default) without a manifest, untouched with one."""

    env: tuple[EnvVar, ...] | None = setting(pods.environment, container="env")
    """Environment of the training program: name → text, number, `{"secret": NAME, "key": KEY}` or `{"config_map": NAME,
    "key": KEY}`; or a list of core/v1 EnvVar objects. The job's own `PTJOB_*` variables override them. None: no
    further variables."""

    env_from: tuple[Mapping[str, Any], ...] | None = setting(
        parsers.env_sources, container="envFrom", TrainJob=_ONLY_RUNTIME
    )
    """All keys of secrets and config maps as environment: `{"secret": NAME}`, `{"config_map": NAME}` or core/v1
    EnvFromSource objects. They are added to a manifest's. None: none are added."""

    volumes: tuple[VolumeMount | PodVolume, ...] | None = setting(
        volumes, pod=by_function("volumes"), container=by_function("volumeMounts")
    )
    """Claims to mount in every pod: `claim:/path`, `claim:/path:ro`, `claim/sub/path:/path`, or maps of claim,
    mount_path, sub_path, read_only; also core/v1 Volume objects, which `volume_mounts` mounts. They are added to a
    manifest's, and replace a mount at the same path and a volume of the same name. None: none are added."""

    volume_mounts: tuple[Mapping[str, Any], ...] | None = setting(volume_mounts, container=by_function("volumeMounts"))
    """Mounts of volumes in the training container, as core/v1 VolumeMount objects; each replaces a mount at the same
    path. None: only the mounts of `volumes`."""

    code: CodeSource | None = setting(CodeSource.parse)
    """Code that is brought into every pod before the training starts: a folder of this machine, a git repository, or a
    folder of an rsync server. A folder of this machine is given by its path, such as `.`; a relative path begins beside
    the DAG file, or where the command is run. The program starts in the folder, at `working_dir` or `/ptjob-code`, and
    may write there. Files that `.gitignore` or `.dockerignore` exclude are left out, and so are files that look like
    credentials. The folder is packed when the job is submitted. Up to 16 MB, compressed, travel in Secrets that the job
    owns; a larger folder, of at most 1 GiB, travels over a claim that the job mounts. A repository or an rsync folder
    (`host::module/path`) is given by its address, or by a map of git or rsync, branch, revision, submodules, depth,
    secret, image; it is fetched to `<working_dir>/code/<repository>`, by default below `/root`. Variables of `env` that
    are called `GIT_SYNC_*` or `GITSYNC_*` are passed to the container that fetches it, and the credentials among them
    are moved into a Secret that the job owns. None: the image has the code."""

    restart_policy: str | None = setting(
        parsers.word("Never", "OnFailure", "ExitCode", "Always"),
        PyTorchJob="pytorchReplicaSpecs.*.restartPolicy",
        TrainJob=Refused("the runtime says what becomes of a pod that fails"),
        PyTorchTrainingJob="replicaSpecs.*.restartPolicy",
    )
    """Restart policy of a replica that fails. None: `Never` without a manifest - a rank that is restarted alone cannot
    rejoin the others, so the whole job must fail and be retried - and `OnFailure` if the job is elastic, where it
    can."""

    clean_pod_policy: str | None = setting(
        parsers.word("Running", "All", "None"),
        keeps_none=True,
        PyTorchJob="runPolicy.cleanPodPolicy",
        TrainJob=Refused("a TrainJob's end stops the pods that still run, as Running says"),
        PyTorchTrainingJob=Place("runPolicy.cleanUpPolicy", _CLEAN_UP.get),
    )
    """Pods that are deleted when the job ends. None: `Running` without a manifest, so that no replica keeps its GPUs
    (the CRD's default keeps them all running). The text `"None"` is the CRD's word for keeping every pod."""

    backoff_limit: int | None = setting(
        parsers.integer(0),
        PyTorchJob="runPolicy.backoffLimit",
        TrainJob=Refused("the runtime's job has it"),
        PyTorchTrainingJob="runPolicy.backoffLimit",
    )
    """Number of container restarts, over all replicas, after which the job fails. None: no limit. It has no effect with
    `restart_policy` `Never`."""

    active_deadline_seconds: int | None = setting(
        _seconds(1),
        PyTorchJob="runPolicy.activeDeadlineSeconds",
        TrainJob="activeDeadlineSeconds",
        PyTorchTrainingJob="runPolicy.activeDeadlineSeconds",
    )
    """Seconds that the job may run before it is failed by the operator; also a timedelta. None: no deadline."""

    ttl_seconds_after_finished: int | None = setting(
        _seconds(0), PyTorchJob="runPolicy.ttlSecondsAfterFinished", TrainJob=_NO_TTL, PyTorchTrainingJob=_NO_TTL
    )
    """Seconds after its end at which the finished job is deleted, also a timedelta; outputs stay. None: 7 days without
    a manifest, long enough to look into a failure after a weekend. 2147483647 keeps it for good."""

    suspend: bool | None = setting(
        parsers.boolean, PyTorchJob="runPolicy.suspend", TrainJob="suspend", PyTorchTrainingJob="runMode.pause.enabled"
    )
    """Create the job suspended: it has no pods until somebody resumes it (`ptjob resume`). None: no."""

    elastic_policy: ElasticPolicy | None = setting(
        ElasticPolicy.parse,
        PyTorchJob=by_function("elasticPolicy"),
        TrainJob=Refused("Trainer has no elastic jobs since 2.2"),
        PyTorchTrainingJob=by_function("elastic"),
    )
    """Makes the job elastic: min_replicas, max_replicas, max_restarts, rdzv_backend, rdzv_host, rdzv_port, rdzv_id,
    rdzv_conf, standalone. All pods are then workers, and rank 0 is worker 0. None: a fixed number of pods."""

    service_account_name: str | None = setting(parsers.text, pod="serviceAccountName")
    """Service account of the pods. None: the namespace's `default`."""

    image_pull_secrets: tuple[str, ...] | None = setting(pods.secret_names, pod=Place("imagePullSecrets", _named))
    """Names of the secrets that can pull the image. None: the service account's."""

    node_selector: Mapping[str, str] | None = setting(pods.label_map, pod="nodeSelector")
    """Labels that a node must have. None: any node."""

    tolerations: tuple[Mapping[str, Any], ...] | None = setting(pods.tolerations, pod="tolerations")
    """Taints that the pods accept, as core/v1 Toleration objects. None: none."""

    affinity: Mapping[str, Any] | None = setting(pods.affinity, pod="affinity")
    """A core/v1 Affinity object for every pod. None: none."""

    priority_class_name: str | None = setting(parsers.text, pod="priorityClassName", TrainJob=_ONLY_RUNTIME)
    """PriorityClass of the pods; it must exist. None: the cluster's default."""

    scheduler_name: str | None = setting(parsers.text, pod="schedulerName", TrainJob=_ONLY_RUNTIME)
    """Scheduler that places the pods. None: the cluster's default."""

    queue_name: str | None = setting(pods.label_value, PyTorchTrainingJob="scheduler.t9kScheduler.queue")
    """Kueue's LocalQueue, as the job's label; with the scheduler `volcano` Volcano's queue. None: not queued."""

    gang: bool | None = setting(
        parsers.boolean,
        PyTorchJob=by_function("runPolicy.schedulingPolicy"),
        TrainJob=Refused("the runtime's podGroupPolicy says it"),
        PyTorchTrainingJob=Refused("T9k's scheduler places a job's pods together by itself"),
    )
    """Schedule the pods all together or not at all (`schedulingPolicy.minAvailable` = all), if the operator uses a
    gang scheduler. None: the operator's default. False removes a manifest's minAvailable."""

    host_network: bool | None = setting(parsers.boolean, pod="hostNetwork", TrainJob=_ONLY_RUNTIME)
    """Use the node's network in the pods (for RDMA). None: no."""

    security_context: Mapping[str, Any] | None = setting(parsers.mapping, pod="securityContext")
    """A core/v1 PodSecurityContext for every pod. None: the cluster's default."""

    container_security_context: Mapping[str, Any] | None = setting(parsers.mapping, container="securityContext")
    """A core/v1 SecurityContext for the training container. None: as the pod's."""

    init_containers: tuple[Mapping[str, Any], ...] | None = setting(
        parsers.containers, pod="initContainers", TrainJob=_ONLY_RUNTIME
    )
    """Containers that run before the training in every pod, as core/v1 Container objects; they replace a manifest's of
    the same names. None: none are added."""

    termination_grace_period_seconds: int | None = setting(_seconds(0), pod="terminationGracePeriodSeconds")
    """Seconds between SIGTERM and SIGKILL when a pod is stopped; also a timedelta. None: 30, Kubernetes' default."""

    labels: Mapping[str, str] | None = setting(pods.label_map)
    """Labels of the job and its pods, in addition to this package's own. None: no further labels."""

    annotations: Mapping[str, str] | None = setting(pods.annotation_map)
    """Annotations of the job and its pods. None: without a manifest, only the one that keeps Istio's sidecar out of the
    pods, because a pod with it never ends; it can be overridden here."""

    master: RoleFields | None = setting(RoleFields.parse, TrainJob=_ALIKE)
    """Fields of rank 0's pod that override the job's: image, command, args, env, cpu, memory, gpus,
    container_resources, node_selector. A resource stands in one place: cpu or container_resources, for job and roles
    alike. None: as the job. Not for elastic jobs, which have no master."""

    worker: RoleFields | None = setting(RoleFields.parse, TrainJob=_ALIKE)
    """The same fields of all other pods; no effect if there are none. None: as the job."""

    pod_template: Manifest | None = setting(parsers.pod_template)
    """Template of every pod, which all other fields and a manifest override: a pod template, a pod (as for
    KubernetesPodOperator) or a PodTemplate, as a map, a YAML text or the path of a .yaml file. Its training container
    is the one named `pytorch`, else the first one. None: no template."""

    model: str | None = setting(parsers.text)
    """File or folder of the model: `pvc://claim/path`, or the path as the program sees it, which must be on a
    claim. PTJOB_MODEL_PATH has the path in the pod. The job only succeeds if something newer than the job is there.
    None: not checked."""

    tfevents: str | None = setting(parsers.text)
    """Folder of the program's TensorBoard events, in the same two forms as `model`; PTJOB_TFEVENTS_DIR has the
    path. Checked like the model. None: not checked."""

    checkpoints: str | None = setting(parsers.text)
    """Folder of the checkpoints from which the next attempt resumes, in the same two forms as `model`;
    PTJOB_CHECKPOINT_DIR has the path and, from the second attempt on, PTJOB_RESUME_FROM that of the newest complete
    checkpoint. Not needed for success. None: none."""

    tensorboard: TensorBoard | None = setting(TensorBoard.parse)
    """Run a TensorBoard beside the job on a cluster, as long as the job's object exists: true, or a map of
    logdir (`pvc://claim/path`, or the path as the program sees it; default `tfevents`), image (default the
    installation's, else the job's own), service_type (`NodePort` or `ClusterIP`). If it cannot be created, the log says
    so and the job trains without it. None: no TensorBoard."""

    kind: str | None = setting(kind_name)
    """Kind of the job's object: `PyTorchJob` (training-operator v1), `TrainJob` (Kubeflow Trainer v2) or
    `PyTorchTrainingJob` (T9k), in upper or lower case. A field that the kind does not support is refused by its name.
    None: the manifest's; else the installation's, `[ptjob] kind`; else the first of these that the cluster serves."""

    runtime: str | None = setting(
        parsers.text,
        PyTorchJob=Refused("leave it out, or say kind=TrainJob"),
        TrainJob=by_function("runtimeRef"),
        PyTorchTrainingJob=Refused("it is a TrainJob's"),
    )
    """Runtime of a TrainJob: `NAME` of a runtime of the whole cluster, or `TrainingRuntime/NAME` of one of the
    namespace. None: `torch-distributed`, which comes with Trainer. Refused for other kinds."""

    manifest: Manifest | None = setting(_manifest)
    """The user's own job of one of these kinds: a map, a YAML text or the path of a .yaml file. None: the job is built
    from the fields."""

    @classmethod
    def parse(cls, **values: Any) -> TrainingJob:
        """Parse fields as rendered by templates: `"2"` is 2, `"true"` is True, `""` and `"None"` are unset.

        Objects of a Kubernetes client (V1Volume, V1PodTemplateSpec …) are accepted in place of maps.

        Raises:
            InvalidSpec: a field is unknown (the text has the closest name) or invalid, or fields exclude each other.
        """
        return parse_into(cls, to_wire(values))

    def __post_init__(self) -> None:
        if self.elastic_policy is not None and self.master is not None:
            raise InvalidSpec.at("master", "leave it out: all pods of an elastic job are workers; use `worker`")
        gpu = self.gpu_resource or DEFAULT_GPU
        for part, prefix in ((self, ""), (self.role("master"), "master."), (self.role("worker"), "worker.")):
            check_asked_once(part, prefix, gpu=gpu)
        named = (self.manifest or {}).get("kind", self.kind)
        if self.kind is not None and self.kind != named:
            raise InvalidSpec.of("kind", self.kind, f"allowed: the manifest's, {named}; or leave it out")
        if self.manifest is None:
            self._check_complete()

    def _check_complete(self) -> None:
        if self.name is None:
            raise InvalidSpec.of("name", None, "required without a manifest")
        for role in self.roles:
            if self.role(role).image is None and self.pod_template is None:
                raise InvalidSpec.of("image", None, "required without a manifest")
        if self.elastic_policy is not None:
            self.elastic_policy.check_workers(self.pod_count)

    @property
    def given(self) -> dict[str, Any]:
        """Return the fields that are set, by name."""
        return {name: value for name in JOB_FIELDS if (value := getattr(self, name)) is not None}

    def in_namespace(self, namespace: str | None) -> TrainingJob:
        """Return the job in this namespace; unchanged if the job or its manifest names one."""
        return self if self.named_namespace or namespace is None else replace(self, namespace=namespace)

    @property
    def named_namespace(self) -> str | None:
        """Return the namespace that the job or its manifest names; None if neither does."""
        return self.namespace or ((self.manifest or {}).get("metadata") or {}).get("namespace")

    @property
    def named_kind(self) -> str | None:
        """Return the kind that the job or its manifest names; None if neither does."""
        return self.kind or (self.manifest or {}).get("kind")

    @property
    def pod_count(self) -> int:
        """Return the number of pods that the typed fields request."""
        if self.workers is not None:
            return self.workers
        return self.elastic_policy.default_workers if self.elastic_policy else 1

    @property
    def roles(self) -> tuple[Role, ...]:
        """Return the roles that the typed fields request.

        A job that is not elastic always has a master: without one, the operator sets no ranks.
        """
        if self.elastic_policy is not None:
            return ("worker",)
        return ("master", "worker") if self.pod_count > 1 else ("master",)

    def role(self, role: Role) -> RoleFields:
        """Return the fields of one role: its own override the job's."""
        own = self.master if role == "master" else self.worker
        return RoleFields.of(self, own or RoleFields())


JOB_FIELDS = names(TrainingJob)
"""Names of all fields, in documentation order."""
