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
    image_pull_policy: Optional[str] = None,
    command: Optional[list] = None,
    args: Optional[list] = None,
    working_dir: Optional[str] = None,
    workers: Optional[str] = None,
    nproc_per_node: Optional[str] = None,
    gpus: Optional[str] = None,
    gpu_resource: Optional[str] = None,
    cpu: Optional[str] = None,
    memory: Optional[str] = None,
    container_resources: Optional[dict] = None,
    shared_memory: Optional[str] = None,
    env: Optional[dict] = None,
    env_from: Optional[list] = None,
    volumes: Optional[list] = None,
    volume_mounts: Optional[list] = None,
    code: Optional[dict] = None,
    restart_policy: Optional[str] = None,
    clean_pod_policy: Optional[str] = None,
    backoff_limit: Optional[str] = None,
    active_deadline_seconds: Optional[str] = None,
    ttl_seconds_after_finished: Optional[str] = None,
    suspend: Optional[str] = None,
    elastic_policy: Optional[dict] = None,
    service_account_name: Optional[str] = None,
    image_pull_secrets: Optional[list] = None,
    node_selector: Optional[dict] = None,
    tolerations: Optional[list] = None,
    affinity: Optional[dict] = None,
    priority_class_name: Optional[str] = None,
    scheduler_name: Optional[str] = None,
    queue_name: Optional[str] = None,
    gang: Optional[str] = None,
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
    env_objects: Optional[list] = None,
    code_folder: dsl.Input[dsl.Artifact] = None,
    model_artifact: Optional[str] = None,
    timeout: Optional[str] = None,
    exact_name: Optional[str] = None,
    on_finish_action: Optional[str] = None,
    keep_running_pods: Optional[str] = None,
    start_timeout: Optional[str] = None,
    queue_timeout: Optional[str] = None,
    crash_loop_limit: Optional[str] = None,
    progress: Optional[str] = None,
    max_preemptions: Optional[str] = None,
    no_progress_limit: Optional[str] = None,
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
        name: Readable beginning of the job's name. None: the manifest's name, else the task's name.
        namespace: Namespace of the job. None: the step's own.
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
            NAME, "key": KEY}`. None: no further variables.
        env_from: All keys of secrets and config maps as environment: `{"secret": NAME}`, `{"config_map": NAME}` or
            core/v1 EnvFromSource objects. None: none are added.
        volumes: Claims to mount in every pod: `claim:/path`, `claim:/path:ro`, `claim/sub/path:/path`, or maps of
            claim, mount_path, sub_path, read_only; also core/v1 Volume objects, which `volume_mounts` mounts. None:
            none are added.
        volume_mounts: Mounts of volumes in the training container, as core/v1 VolumeMount objects; each replaces a
            mount at the same path. None: only the mounts of `volumes`.
        code: Code to fetch into <working_dir>/code: git or rsync, branch, revision, submodules, depth, secret, image.
            None: the image has the code.
        restart_policy: Restart policy of a replica that fails. None: `Never` without a manifest - a rank that is
            restarted alone cannot rejoin the others, so the whole job must fail and be retried - and `OnFailure` if the
            job is elastic, where it can.
        clean_pod_policy: Pods that are deleted when the job ends. None: `Running` without a manifest, so that no
            replica keeps its GPUs (the CRD's default keeps them all running).
        backoff_limit: Number of container restarts, over all replicas, after which the job fails. None: no limit.
        active_deadline_seconds: Seconds that the job may run before it is failed by the operator. None: no deadline.
        ttl_seconds_after_finished: Seconds after its end at which the finished job is deleted; outputs stay. None: 7
            days without a manifest, long enough to look into a failure after a weekend. 2147483647 keeps it for good.
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
        termination_grace_period_seconds: Seconds between SIGTERM and SIGKILL when a pod is stopped. None: 30,
            Kubernetes' default.
        labels: Labels of the job and its pods, in addition to this package's own. None: no further labels.
        annotations: Annotations of the job and its pods. None: without a manifest, only the one that keeps Istio's
            sidecar out of the pods, because a pod with it never ends; it can be overridden here.
        master: Fields of rank 0's pod that override the job's: image, command, args, env, cpu, memory, gpus,
            container_resources, node_selector. None: as the job.
        worker: The same fields of all other pods; no effect if there are none. None: as the job.
        pod_template: Template of every pod, which all other inputs override: a pod template, a pod or a PodTemplate, as
            a map. None: no template.
        model: File or folder of the model: `pvc://claim/path`, or the path as the program sees it, which must be on a
            claim. None: not checked.
        tfevents: Folder of the program's TensorBoard events, in the same two forms as `model`; PTJOB_TFEVENTS_DIR has
            the path. None: not checked.
        checkpoints: Folder of the checkpoints from which the next attempt resumes, in the same two forms as `model`;
            PTJOB_CHECKPOINT_DIR has the path and, from the second attempt on, PTJOB_RESUME_FROM that of the newest
            complete checkpoint. None: none.
        tensorboard: Run a TensorBoard beside the job, as long as the job's object exists: logdir, image, service_type;
            {} for that of its `tfevents`. None: no TensorBoard.
        kind: Kind of the job's object: `PyTorchJob` (training-operator v1), `TrainJob` (Kubeflow Trainer v2) or
            `PyTorchTrainingJob` (T9k), in upper or lower case. None: the manifest's; else the installation's, `[ptjob]
            kind`; else the first of these that the cluster serves.
        runtime: Runtime of a TrainJob: `NAME` of a runtime of the whole cluster, or `TrainingRuntime/NAME` of one of
            the namespace. None: `torch-distributed`, which comes with Trainer.
        manifest: The user's own job of one of these kinds, as a map. None: the job is built from the inputs.
        pipeline_run_id: The placeholder dsl.PIPELINE_JOB_ID_PLACEHOLDER.
        pipeline_task_name: The placeholder dsl.PIPELINE_TASK_NAME_PLACEHOLDER.
        pipeline_task_id: The placeholder dsl.PIPELINE_TASK_ID_PLACEHOLDER.
        env_objects: The same as a list of core/v1 EnvVar objects; only one of the two.
        code_folder: A folder of code that every pod starts in; in place of code.
        model_artifact: reference (the artifact holds the model's address) or copy. Default reference.
        timeout: Seconds after which the job is stopped and the step fails.
        exact_name: Use the name without the hash that makes two runs distinct.
        on_finish_action: keep_job, delete_job or delete_succeeded_job. Default keep_job.
        keep_running_pods: Keep replicas that still run after the job's end.
        start_timeout: Maximum seconds for images, volumes and init containers. Default 1200.
        queue_timeout: Maximum seconds in a queue. Default no limit.
        crash_loop_limit: Maximum restarts in a row. Default 5.
        progress: Pattern (RE2) of lines that say how far the training is. Default the forms of common frameworks.
        max_preemptions: New attempts after evictions and lost nodes. Default 3 with checkpoints or retries, else 0.
        no_progress_limit: Attempts in a row without a new step, after which none follows; 0 for no limit. Default 2.

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
