"""`pytorchjob_op`: run a distributed PyTorch training job as one step of a pipeline.

    @dsl.pipeline
    def training(epochs: int = 12):
        train = pytorchjob_op(
            name="digits", image="digits", args=["--epochs", epochs], workers=2, model="pvc://models/digits.pt"
        )

It maps arguments to the inputs of the component in `launcher`; `step` runs in the step's pod.
"""

from __future__ import annotations

import inspect
import os
import re
import warnings
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Optional

from kfp import dsl, kubernetes
from kfp.dsl import TaskConfigField, TaskConfigPassthrough
from kfp.dsl.for_loop import LoopArgumentVariable, LoopParameterArgument
from kfp.dsl.pipeline_channel import PipelineArtifactChannel, PipelineChannel, PipelineParameterChannel
from kfp.dsl.pipeline_context import Pipeline
from kfp.dsl.types import type_utils

from ptjob_provider import __version__
from ptjob_provider.core import kinds
from ptjob_provider.core.code.function import from_function
from ptjob_provider.core.code.program import check_no_command, job_command
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.identity import Owner, is_object_name, stem_of
from ptjob_provider.core.manifest import load_manifest, load_object
from ptjob_provider.core.outputs.contract import check_places
from ptjob_provider.core.spec import JOB_FIELDS, CodeSource, TrainingJob
from ptjob_provider.core.spec.code import is_credential
from ptjob_provider.core.spec.parsers import parse_each
from ptjob_provider.core.wire import to_wire
from ptjob_provider.kfp import launcher
from ptjob_provider.kfp.artifacts import ModelArtifact
from ptjob_provider.kfp.claim_paths import OWN_CLAIM
from ptjob_provider.kfp.numbers import PREFIX, mark_of, marked, unmarked
from ptjob_provider.kfp.request import check_placeholders, step_options, with_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

    Text: TypeAlias = str | PipelineChannel
    Number: TypeAlias = int | float | str | PipelineChannel
    Switch: TypeAlias = bool | str | PipelineChannel
    Seconds: TypeAlias = float | timedelta | str | PipelineChannel
    Items: TypeAlias = Sequence[Any] | PipelineChannel
    Map: TypeAlias = Mapping[str, Any] | PipelineChannel

_STRUCTURED = {
    name
    for name, parameter in inspect.signature(launcher.pytorchjob).parameters.items()
    if parameter.annotation in (Optional[list], Optional[dict])  # noqa: UP045 - as `launcher` writes them
}
"""Inputs that are lists or maps; all others are texts."""

_EXAMPLE_IDS = {
    "pipeline_run_id": "00000000-0000-0000-0000-000000000000",
    "pipeline_task_name": "task",
    "pipeline_task_id": "1",
}
"""Ids with which a job is checked when the pipeline is compiled; a run's id may begin with a digit."""

_CHANNEL = re.compile(r"\{\{channel:task=([^;{}]*);name=([^;{}]+);type=(.*?);\}\}")
_SUBVARIABLE = "-subvar-"
_PLACEHOLDER = re.compile(r"\{\{\$\.[a-z_]+\}\}")
_TEXT_TYPES = ("String", "str")
_CLAIM_FIELDS = ("volumes", "volume_mounts", "working_dir", "pod_template", "manifest", "model")


class Values:
    """Collects pipeline values that are parts of other values; each becomes a separate input.

    Attributes:
        channels: the pipeline values by the names of their inputs.
        fields: names of the arguments that contain one.
    """

    def __init__(self) -> None:
        self.channels: dict[str, PipelineChannel] = {}
        self.fields: set[str] = set()

    def taken_from(self, field: str, value: Any) -> Any:
        """Return the value with marks in place of pipeline values, and without nulls in maps.

        kfp cannot compile nulls, and the API server ignores them.

        Raises:
            InvalidSpec: a pipeline value is an artifact.
        """
        if isinstance(value, dict):
            return {
                self.taken_from(field, key): self.taken_from(field, item)
                for key, item in value.items()
                if item is not None
            }
        if isinstance(value, list | tuple):
            return [self.taken_from(field, item) for item in value]
        if isinstance(value, PipelineChannel):
            return self._mark(field, value)
        if isinstance(value, str):
            return _CHANNEL.sub(lambda match: self._mark(field, _channel(*match.groups()), in_text=True), value)
        return value

    def _mark(self, field: str, channel: PipelineChannel, *, in_text: bool = False) -> str:
        if isinstance(channel, PipelineArtifactChannel):
            raise InvalidSpec.of(
                field, channel.full_name, "allowed: parameters and output parameters, such as model_uri"
            )
        self.fields.add(field)
        known = (name for name, each in self.channels.items() if each.pattern == channel.pattern)
        name = next(known, f"{PREFIX}{len(self.channels) + 1}")
        self.channels[name] = channel
        return mark_of(name, _declared(channel), in_text=in_text)


def _declared(channel: PipelineChannel) -> Any:
    """Return the type of a pipeline value; of a loop's constants only if all are floats: kfp goes by the first one."""
    is_part = isinstance(channel, LoopArgumentVariable)
    items = channel.items_or_pipeline_channel if is_part or isinstance(channel, LoopParameterArgument) else None
    if not isinstance(items, list):
        return channel.channel_type
    constants = [item.get(channel.subvar_name) for item in items] if is_part else items
    return "float" if all(isinstance(each, float) for each in constants) else None


def _channel(task: str, name: str, declared: str) -> PipelineChannel:
    """Return the pipeline value that a text names; a loop's item is taken from the loop, as kfp requires."""
    for group in reversed(Pipeline.get_default_pipeline().groups):
        item = getattr(group, "loop_argument", None)
        if item is None or (item.task_name or "") != task:
            continue
        if item.name == name:
            return item
        if name.startswith(item.name + _SUBVARIABLE):
            return getattr(item, name.removeprefix(item.name + _SUBVARIABLE))
    if not type_utils.is_parameter_type(declared):
        return PipelineArtifactChannel(name, declared, task, is_artifact_list=False)
    return PipelineParameterChannel(name, declared, task or None)


def component_inputs(given: Mapping[str, Any], values: Values, *, has_folder: bool) -> dict[str, Any]:
    """Return the inputs of a call of the component.

    Args:
        given: arguments of `pytorchjob_op` that are not None. They may contain pipeline values at any depth.
        values: collects the pipeline values that are parts of other values.
        has_folder: whether an artifact is the job's code.

    Raises:
        InvalidSpec: a manifest or pod template cannot be read, nothing replaces a placeholder, or an argument without
            pipeline values is invalid.
    """
    without_tensorboard = given.get("tensorboard") is False
    names = [name for name in given if not (name == "tensorboard" and without_tensorboard)]
    inputs = {name: _input(name, to_wire(given[name]), values) for name in names}
    for name, value in inputs.items():
        if not _is_placeholder(value):
            check_placeholders(name, with_ids(value, _EXAMPLE_IDS))
    for name in ("env", "master", "worker"):
        _check_no_credentials(name, inputs.get(name))
    late = values.fields.union(name for name, value in inputs.items() if _is_open(value))
    _check(inputs, late, has_folder=has_folder)
    if isinstance(inputs.get("env"), list):
        inputs["env_objects"] = inputs.pop("env")
    return inputs


def known_image(name: str) -> str:
    """Return the name of an image, after checking that it is known when the pipeline is compiled.

    Raises:
        InvalidSpec: the name contains a pipeline value, which nothing would replace.
    """
    if _CHANNEL.search(name) or _is_open(name):
        allowed = "allowed: an image's name, or a pipeline's value that is the whole of it"
        raise InvalidSpec.of("step_image", name, allowed)
    return name


def claim_of_model(inputs: Mapping[str, Any]) -> str:
    """Return the name of the model's claim.

    Raises:
        InvalidSpec: the claim is unknown when the pipeline is compiled, or no model is declared.
    """
    given = {name: inputs.get(name) for name in _CLAIM_FIELDS}
    known = {name: value for name, value in given.items() if not isinstance(value, PipelineChannel)}
    if known.get("model") is not None:
        job = TrainingJob.parse(name="job", image="image", **known)
        rendered = kinds.DEFAULT.render(job, owner=Owner(instance="", ids={}, labels={}), attempt=1)
        assert rendered.outputs.model is not None  # noqa: S101 - the job declares a model
        if is_object_name(rendered.outputs.model.claim):
            return rendered.outputs.model.claim
    allowed = "allowed: a model whose claim is known when the pipeline is compiled: model='pvc://claim/…'"
    raise InvalidSpec.of("model_artifact", "copy", allowed)


def _input(name: str, value: Any, values: Values) -> Any:
    if name == "code" and isinstance(value, PipelineChannel) and value.channel_type in _TEXT_TYPES:
        value = {"git": value}  # a text that is known only at run time counts as the address of a Git repository
    if isinstance(value, PipelineChannel):
        is_whole = name in _STRUCTURED or value.channel_type in _TEXT_TYPES
        return value if is_whole else values.taken_from(name, value)
    value = values.taken_from(name, value)
    if name == "manifest":
        value = values.taken_from(name, load_manifest(value))
    elif name == "pod_template":
        value = values.taken_from(name, load_object(value, field=name))
    elif name == "tensorboard" and value is True:
        value = {}
    elif name == "code":
        value = CodeSource.as_map(value)
        if CodeSource.is_folder(value):
            allowed = "allowed: an address, or an artifact that is a folder: the step's pod does not have this folder"
            raise InvalidSpec.of("code", value["folder"], allowed)
    return marked(value) if name in _STRUCTURED else marked(_text(value))


def _check_no_credentials(field: str, value: Any) -> None:
    """Check that no variable is a credential for code: a compiled pipeline and each of its runs show all variables.

    Raises:
        InvalidSpec: a variable is a credential; the message does not contain its value.
    """
    if isinstance(value, dict) and field in {"master", "worker"}:
        _check_no_credentials(f"{field}.env", value.get("env"))
        return
    variables = dict(value) if isinstance(value, dict) else {}
    if isinstance(value, list):
        variables = {each.get("name"): each.get("valueFrom") for each in value if isinstance(each, dict)}
    for name, reference in variables.items():
        if is_credential(str(name)) and not isinstance(reference, dict):
            instead = '{"secret": NAME, "key": KEY}, or name a Secret with `code`'
            raise InvalidSpec(f"{field}.{name}: the compiled pipeline and its runs would show it; write {instead}")


def _text(value: Any) -> str:
    if isinstance(value, timedelta):
        value = value.total_seconds()
        value = int(value) if value.is_integer() else value
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_open(value: Any) -> bool:
    """Return whether an input's value is only known when the pipeline runs."""
    return isinstance(value, PipelineChannel) or _is_placeholder(value)


def _is_placeholder(value: Any) -> bool:
    """Return whether a value is a placeholder that only the driver of Kubeflow Pipelines replaces."""
    return isinstance(value, str) and _PLACEHOLDER.fullmatch(with_ids(value, _EXAMPLE_IDS)) is not None


def _check(inputs: Mapping[str, Any], late: set[str], *, has_folder: bool) -> None:
    """Check the known inputs, and their combination if no field of the job is `late`: known only in a run.

    Raises:
        InvalidSpec: an input is invalid, the inputs exclude each other, or the job's kind has no place for one.
    """
    known = {name: unmarked(with_ids(value, _EXAMPLE_IDS)) for name, value in inputs.items() if name not in late}
    step_options(known)
    check_places(known)
    fields = {name: value for name, value in known.items() if name in JOB_FIELDS}
    if "manifest" not in fields:
        fields.setdefault("name", "job")
    is_known = late.isdisjoint(JOB_FIELDS)
    given = TrainingJob.parse(**fields).given if is_known else parse_each(TrainingJob, fields)
    later = late | {"code"} if has_folder else late
    kind = given.get("kind") or given.get("manifest", {}).get("kind")
    if kind is not None and "kind" not in later:
        kinds.named(kind).check_fields({**dict.fromkeys(later), **given}, but=later)


def _with_command(
    given: dict[str, Any],
    *,
    function: Callable[..., Any] | None = None,
    function_arguments: Mapping[str, Any] | None = None,
    modules: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the arguments with the function's program as the command; pipeline values follow it as `args`.

    Raises:
        InvalidSpec: the function or an argument cannot be sent, or a pipeline value is a part of an argument.
    """
    if function is None:
        if function_arguments or modules:
            raise InvalidSpec.of("function", None, "allowed: a function, where it has arguments or modules")
        return given
    check_no_command(given, ("command", "args"), title="pytorchjob_op")
    arguments = dict(function_arguments or {})
    late = {name: value for name, value in arguments.items() if _is_late(name, value)}
    read_as = [
        (name, isinstance(value, PipelineChannel) and value.channel_type not in _TEXT_TYPES)
        for name, value in late.items()
    ]
    has_folder = isinstance(given.get("code"), PipelineArtifactChannel)
    source = from_function(function, modules=modules, has_folder=has_folder)
    if source.notice:
        warnings.warn(source.notice, stacklevel=3)
    command = job_command(source, function, [], arguments, fields=given, late=read_as)
    texts = {"args": [str(value) for value in late.values()]} if late else {}
    named = {} if "manifest" in given else {"name": stem_of(source.name)}
    return {**named, **given, "command": command, **texts}


def _is_late(name: str, value: Any) -> bool:
    """Return whether an argument of the function is only known when the pipeline runs.

    Raises:
        InvalidSpec: a pipeline value is a part of a list or a map.
    """
    if isinstance(value, PipelineChannel | str):
        return isinstance(value, PipelineChannel) or bool(_CHANNEL.search(value)) or "{{$." in value
    values = Values()
    field = f"function_arguments.{name}"
    values.taken_from(field, to_wire(value))
    if values.channels or "{{$." in repr(value):
        raise InvalidSpec.of(field, value, "allowed: a pipeline's value as the whole argument, or inside a text")
    return False


STEP_IMAGE = os.environ.get("PTJOB_STEP_IMAGE") or f"ghcr.io/ptjob-provider/step:{__version__}"
"""The step's default image: that of $PTJOB_STEP_IMAGE when a pipeline is compiled, such as a mirror's.

It contains kfp and this package, so it serves other components as well.
"""

_IDS = {
    "pipeline_run_id": dsl.PIPELINE_JOB_ID_PLACEHOLDER,
    "pipeline_task_name": dsl.PIPELINE_TASK_NAME_PLACEHOLDER,
    "pipeline_task_id": dsl.PIPELINE_TASK_ID_PLACEHOLDER,
}


def pytorchjob_op(
    *,
    name: Text | None = None,
    namespace: Text | None = None,
    image: Text | None = None,
    image_pull_policy: Text | None = None,
    command: Items | None = None,
    args: Items | None = None,
    working_dir: Text | None = None,
    workers: Number | None = None,
    nproc_per_node: Number | None = None,
    gpus: Number | None = None,
    gpu_resource: Text | None = None,
    cpu: Number | None = None,
    memory: Text | None = None,
    container_resources: Any = None,
    shared_memory: Switch | None = None,
    env: Map | Sequence[Any] | None = None,
    env_from: Items | None = None,
    volumes: Items | None = None,
    volume_mounts: Items | None = None,
    code: Map | Text | PipelineArtifactChannel | None = None,
    restart_policy: Text | None = None,
    clean_pod_policy: Text | None = None,
    backoff_limit: Number | None = None,
    active_deadline_seconds: Seconds | None = None,
    ttl_seconds_after_finished: Seconds | None = None,
    suspend: Switch | None = None,
    elastic_policy: Map | None = None,
    service_account_name: Text | None = None,
    image_pull_secrets: Items | None = None,
    node_selector: Map | None = None,
    tolerations: Items | None = None,
    affinity: Any = None,
    priority_class_name: Text | None = None,
    scheduler_name: Text | None = None,
    queue_name: Text | None = None,
    gang: Switch | None = None,
    host_network: Switch | None = None,
    security_context: Any = None,
    container_security_context: Any = None,
    init_containers: Items | None = None,
    termination_grace_period_seconds: Seconds | None = None,
    labels: Map | None = None,
    annotations: Map | None = None,
    master: Map | None = None,
    worker: Map | None = None,
    pod_template: Any = None,
    model: Text | None = None,
    tfevents: Text | None = None,
    checkpoints: Text | None = None,
    tensorboard: Map | bool | None = None,
    kind: Text | None = None,
    runtime: Text | None = None,
    manifest: Map | str | os.PathLike[str] | None = None,
    function: Callable[..., Any] | None = None,
    function_arguments: Mapping[str, Any] | None = None,
    modules: Sequence[str] | None = None,
    model_artifact: str | None = None,
    timeout: Seconds | None = None,
    exact_name: bool | None = None,
    on_finish_action: str | None = None,
    keep_running_pods: bool | None = None,
    start_timeout: Seconds | None = None,
    queue_timeout: Seconds | None = None,
    crash_loop_limit: Number | None = None,
    progress: Text | None = None,
    max_preemptions: Number | None = None,
    no_progress_limit: Number | None = None,
    step_image: Text | None = None,
) -> dsl.PipelineTask:
    """Add a step that submits a training job, shows rank 0's log, and succeeds if the job does and has its outputs.

    Every field of `core.spec.TrainingJob` is a parameter with the name, units and meaning that it has in
    `PyTorchJobOperator`. A pipeline's parameters and other steps' outputs are accepted as whole values, inside texts
    (`f"--lr={lr}"`), in lists and in maps. Objects of the Kubernetes client are accepted where the API has
    a map; a manifest or pod template given as YAML text or file is read when the pipeline is compiled.

    Settings of the returned task apply to the job's pods, with lower precedence than these arguments: `set_cpu_limit`,
    `set_memory_limit`, `set_accelerator_limit`, `set_env_variable`, `kubernetes.mount_pvc`, `add_toleration`,
    `add_node_selector`, `add_node_affinity`. The step is not cached, unless you call `set_caching_options`.

    Outputs: the artifacts `trained_model`, `metrics` (the last scalars), `curves` (drawn, HTML) and `report`; the texts
    `job_name`, `model_uri`, `model_claim`, `model_path` and `tfevents_uri`; `scalars` (tag to value) and `result`
    (Airflow's XCom `return_value`, without nulls).

    Args:
        name: Readable beginning of the job's name. None: the manifest's name, else the task's name.
        namespace: Namespace of the job. None: the step's own; in another one the job has no owner, see
            docs/how-to/kubeflow-pipelines.md.
        image: Container image of every replica. None: the manifest's; required without a manifest.
        image_pull_policy: Pull policy of the image. None: Kubernetes decides by its tag.
        command: Program and its first arguments, as a list; it replaces the image's entrypoint. None: the image's
            entrypoint.
        args: Arguments after the command or the image's entrypoint, as a list; numbers become text. None: the image's.
        working_dir: Directory in which the program starts, as an absolute path. None: the image's.
        workers: Number of pods, rank 0 **included**, as Arena counts: 1 is a master alone, 4 a master and three
            workers. None: 1, or as many as an elastic job can use.
        nproc_per_node: Training processes per pod, for programs that are started by torchrun: a number, or `auto`,
            `cpu`, `gpu` to let torchrun count. None: the operator's default, `auto`.
        gpus: GPUs per pod. None: none without a manifest. 0 removes the GPUs of a manifest.
        gpu_resource: Resource name of the device that `gpus` counts. None: the one that the manifest requests, else
            `nvidia.com/gpu`.
        cpu: Cores per pod (`4`, `0.5`, `500m`), as request and as limit. None: the namespace's default, else unlimited.
        memory: Bytes per pod (`16Gi`), as request and as limit, so that the pod is not killed for what other pods use.
            None: the namespace's default, else unlimited.
        container_resources: `{"requests": {...}, "limits": {...}}` per pod, for requests below their limits and for
            other devices. None: only `cpu`, `memory` and `gpus`.
        shared_memory: Size of /dev/shm (`8Gi`), which data loaders and NCCL need; the container runtime's 64 MB kill a
            data loader's workers with a bus error. None: `2Gi` (Arena's default) without a manifest, untouched with
            one.
        env: Environment of the training program: name → text, number, `{"secret": NAME, "key": KEY}` or `{"config_map":
            NAME, "key": KEY}`; or a list of core/v1 EnvVar objects. None: no further variables.
        env_from: All keys of secrets and config maps as environment: `{"secret": NAME}`, `{"config_map": NAME}` or
            core/v1 EnvFromSource objects. None: none are added.
        volumes: Claims to mount in every pod: `claim:/path`, `claim:/path:ro`, `claim/sub/path:/path`, or maps of
            claim, mount_path, sub_path, read_only; also core/v1 Volume objects, which `volume_mounts` mounts. None:
            none are added.
        volume_mounts: Mounts of volumes in the training container, as core/v1 VolumeMount objects; each replaces a
            mount at the same path. None: only the mounts of `volumes`.
        code: Code that is brought into every pod before the training starts: a folder of this machine, a git
            repository, or a folder of an rsync server. None: the image has the code.
        restart_policy: Restart policy of a replica that fails. None: `Never` without a manifest - a rank that is
            restarted alone cannot rejoin the others, so the whole job must fail and be retried - and `OnFailure` if the
            job is elastic, where it can.
        clean_pod_policy: Pods that are deleted when the job ends. None: `Running` without a manifest, so that no
            replica keeps its GPUs (the CRD's default keeps them all running).
        backoff_limit: Number of container restarts, over all replicas, after which the job fails. None: no limit.
        active_deadline_seconds: Seconds that the job may run before it is failed by the operator; also a timedelta.
            None: no deadline.
        ttl_seconds_after_finished: Seconds after its end at which the finished job is deleted, also a timedelta;
            outputs stay. None: 7 days without a manifest, long enough to look into a failure after a weekend.
            2147483647 keeps it for good.
        suspend: Create the job suspended: it has no pods until somebody resumes it (`ptjob resume`). None: no.
        elastic_policy: Makes the job elastic: min_replicas, max_replicas, max_restarts, rdzv_backend, rdzv_host,
            rdzv_port, rdzv_id, rdzv_conf, standalone. None: a fixed number of pods.
        service_account_name: Service account of the pods. None: the namespace's `default`.
        image_pull_secrets: Names of the secrets that can pull the image. None: the service account's.
        node_selector: Labels that a node must have. None: any node.
        tolerations: Taints that the pods accept, as core/v1 Toleration objects. None: none.
        affinity: A core/v1 Affinity object for every pod. None: none.
        priority_class_name: PriorityClass of the pods; it must exist. None: the cluster's default.
        scheduler_name: Scheduler that places the pods. None: the cluster's default.
        queue_name: Kueue's LocalQueue, as the job's label; with the scheduler `volcano` Volcano's queue. None: not
            queued.
        gang: Schedule the pods all together or not at all (`schedulingPolicy.minAvailable` = all), if the operator uses
            a gang scheduler. None: the operator's default.
        host_network: Use the node's network in the pods (for RDMA). None: no.
        security_context: A core/v1 PodSecurityContext for every pod. None: the cluster's default.
        container_security_context: A core/v1 SecurityContext for the training container. None: as the pod's.
        init_containers: Containers that run before the training in every pod, as core/v1 Container objects; they
            replace a manifest's of the same names. None: none are added.
        termination_grace_period_seconds: Seconds between SIGTERM and SIGKILL when a pod is stopped; also a timedelta.
            None: 30, Kubernetes' default.
        labels: Labels of the job and its pods, in addition to this package's own. None: no further labels.
        annotations: Annotations of the job and its pods. None: without a manifest, only the one that keeps Istio's
            sidecar out of the pods, because a pod with it never ends; it can be overridden here.
        master: Fields of rank 0's pod that override the job's: image, command, args, env, cpu, memory, gpus,
            container_resources, node_selector. None: as the job.
        worker: The same fields of all other pods; no effect if there are none. None: as the job.
        pod_template: Template of every pod, which all other fields and a manifest override: a pod template, a pod (as
            for KubernetesPodOperator) or a PodTemplate, as a map, a YAML text or the path of a .yaml file. None: no
            template.
        model: File or folder of the model: `pvc://claim/path`, or the path as the program sees it, which must be on a
            claim. None: not checked.
        tfevents: Folder of the program's TensorBoard events, in the same two forms as `model`; PTJOB_TFEVENTS_DIR has
            the path. None: not checked.
        checkpoints: Folder of the checkpoints from which the next attempt resumes, in the same two forms as `model`;
            PTJOB_CHECKPOINT_DIR has the path and, from the second attempt on, PTJOB_RESUME_FROM that of the newest
            complete checkpoint. None: none.
        tensorboard: Run a TensorBoard beside the job on a cluster, as long as the job's object exists: true, or a map
            of logdir (`pvc://claim/path`, or the path as the program sees it; default `tfevents`), image (default the
            installation's, else the job's own), service_type (`NodePort` or `ClusterIP`). None: no TensorBoard.
        kind: Kind of the job's object: `PyTorchJob` (training-operator v1), `TrainJob` (Kubeflow Trainer v2) or
            `PyTorchTrainingJob` (T9k), in upper or lower case. None: the manifest's; else the installation's, `[ptjob]
            kind`; else the first of these that the cluster serves.
        runtime: Runtime of a TrainJob: `NAME` of a runtime of the whole cluster, or `TrainingRuntime/NAME` of one of
            the namespace. None: `torch-distributed`, which comes with Trainer.
        manifest: The user's own job of one of these kinds: a map, a YAML text or the path of a .yaml file. None: the
            job is built from the fields.
        function: Runs on every rank, in place of a command. Its source is compiled into the pipeline with what it uses
            of its file; its return value is `return_value` in `result`. None: the command runs.
        function_arguments: Its keyword arguments. A pipeline value may be a whole argument, or stand inside a text.
            None: no arguments.
        modules: Packages and modules that it imports, pure Python; their sources are compiled in, too. None: none.
        model_artifact: `reference` (None): the artifact holds the address `pvc://claim/path`, and a consumer mounts the
            claim (see `handover.mount_model`). `copy`: the bytes go to the run's artifact store, where any component
            reads them. For that, the step mounts the claim as a user who may read it
            (`kubernetes.set_security_context`); several nodes must be able to mount it, or both run on one node.
        timeout: seconds (or a timedelta) that one try of the step waits before it stops the job and fails. None: no
            limit.
        exact_name: keep the name literally, without the hash that makes two runs distinct.
        on_finish_action: what to do with the job's object: `keep_job` (None), `delete_job`, `delete_succeeded_job`.
        keep_running_pods: keep the replicas that the training operator leaves running after a failure.
        start_timeout: seconds for images, volumes and init containers; None: 1200.
        queue_timeout: seconds to wait in a queue or for a node; None: no limit.
        crash_loop_limit: consecutive restarts after which the job is stopped; None: 5.
        progress: regular expression (RE2) for lines of rank 0 that say how far the training is, with groups named
            `step`, `total`, `epoch`, `epochs` or as a metric. None: the forms of common frameworks.
        max_preemptions: how often the step makes a new attempt after the platform has ended the job: an eviction, a
            preemption, a drained or lost node. None: 3 with `checkpoints` or `set_retry`, else 0.
        no_progress_limit: consecutive attempts that reach no new step, after which no other is made, by the steps in
            rank 0's log; 0: no limit. None: 2.
        step_image: image of the step itself. None: STEP_IMAGE.

    Raises:
        InvalidSpec: a value known when the pipeline is compiled is wrong; the message names it.
    """
    arguments = {field: value for field, value in locals().items() if value is not None}
    program = {name: arguments.pop(name) for name in ("function", "function_arguments", "modules") if name in arguments}
    given = _with_command(arguments, **program)
    chosen = given.pop("step_image", STEP_IMAGE)
    copies = ModelArtifact.parse(model_artifact or ModelArtifact.REFERENCE) is ModelArtifact.COPY
    has_folder = isinstance(code, PipelineArtifactChannel)
    artifacts = {"code_folder": given.pop("code")} if has_folder else {}
    values = Values()
    inputs = component_inputs(given, values, has_folder=has_folder)
    image = STEP_IMAGE if isinstance(chosen, PipelineChannel) else known_image(chosen)
    task = component(image, sees_model=copies, takes_folder=has_folder)(**_IDS, **inputs, **artifacts)
    # The driver may replace the placeholder with the display name, which several tasks of one graph may share.
    task.inputs["pipeline_task_name"] = task.name
    for input_name, channel in values.channels.items():  # as kfp does for channels in a text
        task.inputs[input_name] = channel
        task.channel_inputs.append(channel)
    task.set_caching_options(enable_caching=False)
    if chosen is not image:
        task.set_container_image(chosen)
    if copies:
        kubernetes.mount_pvc(task, pvc_name=claim_of_model(inputs), mount_path=OWN_CLAIM)
    return task


@cache
def component(image: str, *, sees_model: bool = False, takes_folder: bool = True) -> Any:
    """Return the component for kfp, such as for `Compiler().compile(component(STEP_IMAGE), "component.yaml")`.

    Args:
        image: image of the step.
        sees_model: whether volumes set on the task are mounted in the step as well, and not only in the job's pods.
        takes_folder: whether it has the optional input `code_folder`, without which kfp.local of 2.16 runs no task.
    """
    passed_on = [
        TaskConfigField.RESOURCES,
        TaskConfigField.ENV,
        TaskConfigField.KUBERNETES_AFFINITY,
        TaskConfigField.KUBERNETES_TOLERATIONS,
        TaskConfigField.KUBERNETES_NODE_SELECTOR,
        TaskConfigPassthrough(field=TaskConfigField.KUBERNETES_VOLUMES, apply_to_task=sees_model),
    ]
    made = dsl.component(
        launcher.pytorchjob, base_image=image, install_kfp_package=False, task_config_passthroughs=passed_on
    )
    if not takes_folder:
        made.component_spec.inputs.pop("code_folder")
    return made
