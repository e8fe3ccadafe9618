"""`pytorchjob_op`: run a distributed PyTorch training job as one step of a pipeline.

    @dsl.pipeline
    def training(epochs: int = 12):
        train = pytorchjob_op(
            name="digits", image="digits", args=["--epochs", epochs], workers=2, model="pvc://models/digits.pt"
        )

It maps arguments to the inputs of the component in `launcher`; `step` runs in the pod.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any

from kfp import dsl, kubernetes
from kfp.dsl import TaskConfigField, TaskConfigPassthrough
from kfp.dsl.pipeline_channel import PipelineChannel

from ptjob_provider import __version__
from ptjob_provider.kfp import launcher
from ptjob_provider.kfp.artifacts import ModelArtifact
from ptjob_provider.kfp.compiling import Values, claim_of_model, component_inputs, known_image
from ptjob_provider.kfp.mounted import OWN_CLAIM

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta
    from typing import TypeAlias

    Text: TypeAlias = str | PipelineChannel
    Number: TypeAlias = int | float | str | PipelineChannel
    Switch: TypeAlias = bool | str | PipelineChannel
    Seconds: TypeAlias = float | timedelta | str | PipelineChannel
    Items: TypeAlias = Sequence[Any] | PipelineChannel
    Map: TypeAlias = Mapping[str, Any] | PipelineChannel

STEP_IMAGE = os.environ.get("PTJOB_STEP_IMAGE") or f"ghcr.io/ptjob-provider/step:{__version__}"
"""The step's default image: that of $PTJOB_STEP_IMAGE when a pipeline is compiled, such as a mirror's.

It contains kfp and this package, so it serves other components as well.
"""

_IDS = {
    "pipeline_run_id": dsl.PIPELINE_JOB_ID_PLACEHOLDER,
    "pipeline_task_name": dsl.PIPELINE_TASK_NAME_PLACEHOLDER,
    "pipeline_task_id": dsl.PIPELINE_TASK_ID_PLACEHOLDER,
}


def pytorchjob_op(  # noqa: D417 - the job's own fields are documented at TrainingJob
    *,
    name: Text | None = None,
    namespace: Text | None = None,
    image: Text | None = None,
    command: Items | None = None,
    args: Items | None = None,
    workers: Number | None = None,
    nproc_per_node: Number | None = None,
    gpus: Number | None = None,
    gpu_resource: Text | None = None,
    cpu: Number | None = None,
    memory: Text | None = None,
    container_resources: Any = None,
    shared_memory: Switch | None = None,
    backend_without_gpu: Text | None = None,
    env: Map | Sequence[Any] | None = None,
    env_from: Items | None = None,
    volumes: Items | None = None,
    volume_mounts: Items | None = None,
    working_dir: Text | None = None,
    code: Map | Text | None = None,
    restart_policy: Text | None = None,
    clean_pod_policy: Text | None = None,
    backoff_limit: Number | None = None,
    active_deadline_seconds: Seconds | None = None,
    ttl_seconds_after_finished: Seconds | None = None,
    suspend: Switch | None = None,
    elastic_policy: Map | None = None,
    node_selector: Map | None = None,
    tolerations: Items | None = None,
    affinity: Any = None,
    priority_class_name: Text | None = None,
    scheduler_name: Text | None = None,
    queue_name: Text | None = None,
    gang: Switch | None = None,
    service_account_name: Text | None = None,
    image_pull_secrets: Items | None = None,
    image_pull_policy: Text | None = None,
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
    model_artifact: str | None = None,
    timeout: Seconds | None = None,
    exact_name: bool | None = None,
    on_finish_action: str | None = None,
    keep_running_pods: bool | None = None,
    start_timeout: Seconds | None = None,
    queue_timeout: Seconds | None = None,
    crash_loop_limit: Number | None = None,
    step_image: Text | None = None,
) -> dsl.PipelineTask:
    """Add a step that submits a training job, shows rank 0's log, and succeeds when the job and its outputs do.

    Every field of `core.spec.TrainingJob` is a parameter with the name, units and meaning that it has in
    `PyTorchJobOperator`. A pipeline's parameters and other steps' outputs are accepted wherever a value is: as a whole,
    inside texts (`f"--lr={lr}"`), in lists and in maps. Objects of the Kubernetes client are accepted where the API has
    a map; a manifest or pod template given as YAML text or file is read when the pipeline is compiled.

    Settings of the returned task apply to the job's pods, with lower precedence than these arguments: `set_cpu_limit`,
    `set_memory_limit`, `set_accelerator_limit`, `set_env_variable`, `kubernetes.mount_pvc`, `add_toleration`,
    `add_node_selector`, `add_node_affinity`. The step is not cached, unless you call `set_caching_options`.

    Outputs: the artifacts `trained_model`, `metrics` (the last scalars), `curves` (drawn, HTML) and `report`; the texts
    `job_name`, `model_uri`, `model_claim`, `model_path` and `tfevents_uri`; `scalars` (tag to value) and `result`
    (Airflow's XCom `return_value`, without nulls).

    Args:
        name: beginning of the job's name. None: the manifest's name, else the task's name.
        namespace: the job's namespace. None: the step's own; in another one the job has no owner, see
            docs/kubeflow-pipelines.md.
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
        step_image: image of the step itself. None: STEP_IMAGE.

    Raises:
        InvalidSpec: a value known when the pipeline is compiled is wrong; the message names it.
    """
    given = {field: value for field, value in locals().items() if value is not None}
    chosen = given.pop("step_image", STEP_IMAGE)
    copies = ModelArtifact.parse(model_artifact or ModelArtifact.REFERENCE) is ModelArtifact.COPY
    values = Values()
    inputs = component_inputs(given, values)
    image = STEP_IMAGE if isinstance(chosen, PipelineChannel) else known_image(chosen)
    task = component(image, sees_model=copies)(**_IDS, **inputs)
    # The driver may replace the placeholder by the display name, which several tasks of one graph may share.
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
def component(image: str, *, sees_model: bool = False) -> Any:
    """Return the component for kfp, such as for `Compiler().compile(component(STEP_IMAGE), "component.yaml")`.

    Args:
        image: image of the step.
        sees_model: whether volumes set on the task are mounted in the step as well, and not only in the job's pods.
    """
    passed_on = [
        TaskConfigField.RESOURCES,
        TaskConfigField.ENV,
        TaskConfigField.KUBERNETES_AFFINITY,
        TaskConfigField.KUBERNETES_TOLERATIONS,
        TaskConfigField.KUBERNETES_NODE_SELECTOR,
        TaskConfigPassthrough(field=TaskConfigField.KUBERNETES_VOLUMES, apply_to_task=sees_model),
    ]
    return dsl.component(
        launcher.pytorchjob, base_image=image, install_kfp_package=False, task_config_passthroughs=passed_on
    )
