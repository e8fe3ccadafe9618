"""The lightweight component of a compiled pipeline, with an input for each field of a job, and the step's outputs.

Kubeflow Pipelines copies the function's source into the pipeline and reads inputs, outputs and their descriptions from
its signature and docstring. Therefore the function imports its dependencies itself, and its annotations must be
objects: no `from __future__ import annotations`. Numbers are texts, because an optional integer without a value stops a
pipeline on one machine (kfp 2.17.0). An input artifact is not `Optional`: on a cluster kfp's runtime calls the
annotation, because the driver names no class of an input artifact.
"""
# ruff: noqa: UP045 - kfp reads Optional, and no other form of union

from typing import NamedTuple, Optional

from kfp import dsl


def pytorchjob(  # noqa: D417 - kfp takes the outputs' descriptions from Returns
    *,
    trained_model: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
    curves: dsl.Output[dsl.HTML],
    report: dsl.Output[dsl.Markdown],
    task_config: dsl.TaskConfig,
    pipeline_run_id: str,
    pipeline_task_name: str,
    pipeline_task_id: str,
    name: Optional[str] = None,
    namespace: Optional[str] = None,
    image: Optional[str] = None,
    command: Optional[list] = None,
    args: Optional[list] = None,
    workers: Optional[str] = None,
    nproc_per_node: Optional[str] = None,
    gpus: Optional[str] = None,
    gpu_resource: Optional[str] = None,
    cpu: Optional[str] = None,
    memory: Optional[str] = None,
    container_resources: Optional[dict] = None,
    shared_memory: Optional[str] = None,
    env: Optional[dict] = None,
    env_objects: Optional[list] = None,
    env_from: Optional[list] = None,
    volumes: Optional[list] = None,
    volume_mounts: Optional[list] = None,
    working_dir: Optional[str] = None,
    code: Optional[dict] = None,
    code_folder: dsl.Input[dsl.Artifact] = None,
    restart_policy: Optional[str] = None,
    clean_pod_policy: Optional[str] = None,
    backoff_limit: Optional[str] = None,
    active_deadline_seconds: Optional[str] = None,
    ttl_seconds_after_finished: Optional[str] = None,
    suspend: Optional[str] = None,
    elastic_policy: Optional[dict] = None,
    node_selector: Optional[dict] = None,
    tolerations: Optional[list] = None,
    affinity: Optional[dict] = None,
    priority_class_name: Optional[str] = None,
    scheduler_name: Optional[str] = None,
    queue_name: Optional[str] = None,
    gang: Optional[str] = None,
    service_account_name: Optional[str] = None,
    image_pull_secrets: Optional[list] = None,
    image_pull_policy: Optional[str] = None,
    host_network: Optional[str] = None,
    security_context: Optional[dict] = None,
    container_security_context: Optional[dict] = None,
    init_containers: Optional[list] = None,
    termination_grace_period_seconds: Optional[str] = None,
    labels: Optional[dict] = None,
    annotations: Optional[dict] = None,
    master: Optional[dict] = None,
    worker: Optional[dict] = None,
    pod_template: Optional[dict] = None,
    model: Optional[str] = None,
    tfevents: Optional[str] = None,
    checkpoints: Optional[str] = None,
    tensorboard: Optional[dict] = None,
    kind: Optional[str] = None,
    runtime: Optional[str] = None,
    manifest: Optional[dict] = None,
    model_artifact: Optional[str] = None,
    timeout: Optional[str] = None,
    exact_name: Optional[str] = None,
    on_finish_action: Optional[str] = None,
    keep_running_pods: Optional[str] = None,
    start_timeout: Optional[str] = None,
    queue_timeout: Optional[str] = None,
    crash_loop_limit: Optional[str] = None,
) -> NamedTuple(
    "Outputs",
    [
        ("job_name", str),
        ("model_uri", str),
        ("model_claim", str),
        ("model_path", str),
        ("tfevents_uri", str),
        ("scalars", dict),
        ("result", dict),
    ],
):
    """Runs a distributed PyTorch training job (PyTorchJob), shows rank 0's log, and fails when the job fails.

    Every input may be left out that has a default. Numbers and switches are given as texts ("2", "0.5", "true");
    seconds are whole seconds.

    Args:
        pipeline_run_id: The placeholder dsl.PIPELINE_JOB_ID_PLACEHOLDER.
        pipeline_task_name: The placeholder dsl.PIPELINE_TASK_NAME_PLACEHOLDER.
        pipeline_task_id: The placeholder dsl.PIPELINE_TASK_ID_PLACEHOLDER.
        name: Beginning of the job's name. Default the manifest's, else the task's name.
        namespace: Namespace of the job. Default the step's own.
        image: Container image of every replica.
        command: Program and its first arguments, in place of the image's entrypoint.
        args: Arguments after the command or the entrypoint.
        workers: Pods of the job, rank 0 included.
        nproc_per_node: Training processes per pod, or auto, cpu, gpu.
        gpus: GPUs per pod.
        gpu_resource: Resource name of the GPUs. Default nvidia.com/gpu.
        cpu: Cores per pod, as request and limit.
        memory: Bytes per pod (16Gi), as request and limit.
        container_resources: Requests and limits per pod, where they differ.
        shared_memory: Size of /dev/shm. Default 2Gi.
        env: Variables, name to text, or to {secret, key} or {config_map, key}.
        env_objects: The same as a list of core/v1 EnvVar objects; only one of the two.
        env_from: All keys of secrets and config maps as variables.
        volumes: Claims to mount (claim:/path, claim:/path:ro), or core/v1 Volume objects.
        volume_mounts: Mount paths of volumes, as core/v1 VolumeMount objects.
        working_dir: Directory that the program starts in.
        code: Code to fetch into <working_dir>/code (git or rsync, branch, revision, submodules, depth, secret, image).
        code_folder: A folder of code that every pod starts in; in place of code.
        restart_policy: Never, OnFailure, ExitCode or Always. Default Never.
        clean_pod_policy: Pods to delete when the job ends (Running, All, None). Default Running.
        backoff_limit: Restarts after which the job fails.
        active_deadline_seconds: Seconds after which the operator fails the job.
        ttl_seconds_after_finished: Seconds after its end at which the job is removed. Default 7 days.
        suspend: Create the job suspended; it waits until it is resumed.
        elastic_policy: Makes the job elastic.
        node_selector: Labels that a node must have.
        tolerations: core/v1 Toleration objects.
        affinity: A core/v1 Affinity object.
        priority_class_name: PriorityClass of the pods.
        scheduler_name: Scheduler that places the pods.
        queue_name: Kueue's LocalQueue.
        gang: Start all pods or none.
        service_account_name: Service account of the pods.
        image_pull_secrets: Names of the secrets that can pull the image.
        image_pull_policy: Always, IfNotPresent or Never.
        host_network: Use the node's network.
        security_context: A core/v1 PodSecurityContext.
        container_security_context: A core/v1 SecurityContext.
        init_containers: core/v1 Container objects that run before the training.
        termination_grace_period_seconds: Seconds between SIGTERM and SIGKILL.
        labels: Labels of the job and its pods.
        annotations: Annotations of the job and its pods.
        master: Fields for rank 0's pod alone.
        worker: Fields for all other pods.
        pod_template: Template of every pod, as in Kubernetes.
        model: Path of the model that the program writes: pvc://claim/path, or a path on a mounted claim.
        tfevents: Path of its TensorBoard events, in the same forms.
        checkpoints: Path of its checkpoints, in the same forms.
        tensorboard: Run a TensorBoard for the job (logdir, image, service_type; {} for its tfevents).
        kind: PyTorchJob, TrainJob or PyTorchTrainingJob. Default what the cluster serves, in this order.
        runtime: The runtime of a TrainJob. Default torch-distributed.
        manifest: A whole job of one of these kinds; the other inputs override its fields.
        model_artifact: reference (the artifact holds the model's address) or copy. Default reference.
        timeout: Seconds after which the job is stopped and the step fails.
        exact_name: Use the name without the hash that makes two runs distinct.
        on_finish_action: keep_job, delete_job or delete_succeeded_job. Default keep_job.
        keep_running_pods: Keep replicas that still run after the job's end.
        start_timeout: Maximum seconds for images, volumes and init containers. Default 1200.
        queue_timeout: Maximum seconds in a queue. Default no limit.
        crash_loop_limit: Maximum restarts in a row. Default 5.

    Returns:
        trained_model: The model.
        metrics: The last value of each scalar.
        curves: Charts of loss, accuracy and all other scalars.
        report: Times, model and last scalars of the training.
        job_name: The job's name.
        model_uri: The model's address, pvc://claim/path.
        model_claim: Its claim.
        model_path: Its path inside the claim.
        tfevents_uri: The address of the TensorBoard events.
        scalars: The last value of each scalar.
        result: The complete result as one map.
    """
    given = dict(locals())
    from ptjob_provider.kfp.step import run  # noqa: PLC0415 - only this function's source is in the pipeline

    return run(given)
