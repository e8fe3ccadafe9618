"""`PyTorchJobOperator`: run a distributed PyTorch training job as one task.

The operator maps its arguments to a `TrainingJob`. `task_session` runs one try; `core` decides about the job. Airflow
parses DAG files repeatedly, so importing this module loads only what checks arguments; methods import the rest.
"""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn

from airflow.sdk import BaseOperator

from ptjob_provider.airflow import config
from ptjob_provider.airflow.arguments import FILES, check_arguments, check_fields, is_checked_later, pattern
from ptjob_provider.airflow.compat import TaskDeferralError, conf
from ptjob_provider.airflow.connection import DEFAULT_CONN_ID, ConnectionArgs
from ptjob_provider.airflow.lineage import EVENTFUL, TellsLineage, is_wanted, model_extra, publish, revision_of
from ptjob_provider.airflow.links import (
    PyTorchJobLink,
    PyTorchJobLogsLink,
    PyTorchJobTensorBoardLink,
    PyTorchJobTrainingLink,
)
from ptjob_provider.airflow.masking import mask_credentials
from ptjob_provider.airflow.pod_operator import PodOperatorNames, with_secrets
from ptjob_provider.airflow.waiting import StoppableLoop
from ptjob_provider.core.errors import InvalidSpec, PTJobError
from ptjob_provider.core.identity import Owner, stem_of
from ptjob_provider.core.spec import JOB_FIELDS, CodeSource, TrainingJob
from ptjob_provider.core.spec.limits import LIMITS, given_limits
from ptjob_provider.core.spec.parsers import is_unset
from ptjob_provider.core.wire import is_model, to_wire

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import timedelta

    from ptjob_provider.airflow.connection import ResolvedConnection
    from ptjob_provider.airflow.outcome import FailureReport
    from ptjob_provider.airflow.task_session import JobExecution
    from ptjob_provider.core.diagnosis import Limits, Retrying
    from ptjob_provider.core.run.orphans import LeaveRunning
    from ptjob_provider.core.run.outcome import JobOutcome
    from ptjob_provider.core.run.submit import Submission
    from ptjob_provider.retraining.operators import DataLedger


class ObjectTemplates(BaseOperator):
    """Base class of an operator with Kubernetes objects in its fields: YAML files, maps, or a client's objects."""

    def resolve_template_files(self) -> None:
        """Read the files that fields name by a path relative to the DAG; an absolute path is read on the worker."""
        for name in FILES:
            content = getattr(self, name)
            if _is_path(content) and not Path(content).is_absolute():
                setattr(self, name, self._read_file(content))

    def render_template(self, content: Any, *args: Any, **kwargs: Any) -> Any:
        """Render a field; convert a client's object to its wire format, and replace a file's path by its content.

        In a mapped task, and in `dag.test()`, `resolve_template_files` has not run before.
        """
        if is_model(content):
            content = to_wire(content)
        elif _is_path(content) and any(content is getattr(self, name) for name in FILES):
            content = self._read_file(content)
        return super().render_template(content, *args, **kwargs)

    def _read_file(self, path: str) -> str:
        if Path(path).is_absolute():
            return Path(path).read_text()
        env = self.get_template_env()
        return env.loader.get_source(env, path)[0] if env.loader else path


def _is_path(content: Any) -> bool:
    return isinstance(content, str) and "\n" not in content and content.endswith((".yaml", ".yml"))


class PyTorchJobOperator(ObjectTemplates, PodOperatorNames, TellsLineage):
    """Submits a training job, waits until it succeeds or fails, and returns its result.

    The result (`return_value`, a `JobResult`) is JSON: `job`, `attempt`, `phase`, `start`, `end`, `queue_seconds`,
    `run_seconds`, `restarts`, `gpu_seconds`, `gpu_seconds_lost`, `usage` (each replica's peaks), `rank0` (its pod),
    `git_revision` (of `code`), `code_revision` {digest, commit, dirty} (of a folder), `model` {uri, claim, path,
    container_path, bytes, sha256}, `tfevents` {uri, claim, path, container_path, last_step, scalars},
    `tensorboard_url`, `diagnosis`, `preemptions` [{node, cause, seconds_lost}], `resumed`, `failed_replicas` [{replica,
    rank, exit_code, cause, message}]. Missing values are null. The operator pushes the XComs `job_name`,
    `job_namespace`, `job_uid` and, if there is a TensorBoard, `tensorboard_url` before it waits. Rank 0's log appears
    in the task's log while the job runs. A declared output that is missing, empty or older than the job fails the task.
    Rank 0 decides whether the job succeeds; if other replicas fail, the log has a warning.

    Further XComs are `model_uri`, `tfevents_uri`, `usage` and `metric_<tag>` after a success, `diagnosis` and `usage`
    after a failure, and `preemptions` after both; see `outcome` and docs/reference/airflow.md.

    Every field of `core.spec.TrainingJob` is a parameter and a template field with the meaning documented there. Use
    typed fields, a `manifest` (map, YAML text, or the path of a .yaml file next to the DAG), or both. Objects of the
    Kubernetes client are accepted wherever the API has a map. KubernetesPodOperator's names are accepted, too: `cmds`,
    `arguments`, `env_vars`, `secrets`, `configmaps` and the others in `pod_operator.ALIASES`.

    The events of `outlets` (`Asset` or `AssetAlias`) carry the outputs as plain JSON, see `lineage.model_extra`.

    A retry adopts a job that still runs. A failed job is retried according to `retries` and `retry_policy` as a new
    attempt, which gets its checkpoint directory and its attempt number. A few failures that no retry fixes are not
    retried (docs/explanation/failures.md).

    Args:
        name: Readable beginning of the job's name. None: the manifest's name, else the task id.
        namespace: Namespace of the job. None: the manifest's namespace, else the connection's, else the namespace of
            Airflow's pod, else `default`.
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
        kubernetes_conn_id: connection to the cluster; the local back-end ignores it. Its `namespace` is the default for
            jobs that name none. Default `kubernetes_default`.
        in_cluster: overrides the connection: use the service account of the pod that Airflow's process runs in. None:
            the connection's value.
        config_file: overrides the connection: path of a kubeconfig, on workers and triggerers. None: the connection's.
        cluster_context: overrides the connection: the kubeconfig's context. None: the connection's.
        deferrable: wait in the triggerer, without a worker slot. Default `[operators] default_deferrable`.
        wait_for_completion: False: return as soon as the job exists, with its reference (see `PyTorchJobSensor`);
            refused with an asset in `outlets`. Default True.
        exact_name: keep the name literally, without the hash that makes two runs distinct. Default False.
        on_finish_action: what to do with the job's object once log, pod history and outputs are saved: `keep_job`
            (default: until its time to live is over, 7 days unless set), `delete_job` or `delete_succeeded_job`.
        keep_running_pods: keep the replicas that the training operator leaves running after a failure. Default False.
        start_timeout: seconds (or a timedelta) in which images, volumes and init containers must let every replica
            start. None: 1200.
        queue_timeout: seconds (or a timedelta) to wait in a queue or for a node. None: no limit.
        crash_loop_limit: consecutive restarts after which the job is stopped. None: 5.
        progress: regular expression (RE2) for lines of rank 0 that say how far the training is, with groups named
            `step`, `total`, `epoch`, `epochs` or as a metric. None: the forms of common frameworks, see
            docs/reference/progress.md.
        max_preemptions: how often this task makes a new attempt after the platform has ended the job, without using one
            of Airflow's `retries`: an eviction, a preemption, a drained or lost node. None: 3 with `checkpoints` or
            `retries`, else 0.
        no_progress_limit: consecutive attempts that reach no new step, after which the task fails without a retry, by
            the steps in rank 0's log since the last clear; 0: no limit. None: 2.
        retry_on: failures to retry although they are among those few: causes (`core.diagnosis.Cause`) and types of the
            exceptions that end the program, as texts or classes. None: none.
        never_retry_on: failures not to retry, in the same form; wins over `retry_on`. None: none.
        ledger: the ledger of the run's batches (`ClaimBatchesOperator`). Before it trains, the task confirms that they
            are still reserved for its run, and fails if another run has them. None: no ledger.
        data_version: version of the training data, such as that of `ClaimBatchesOperator`; added to the outlets'
            events. None: none.
        git_revision: revision of the training code, added likewise. None: the DAG's, if its bundle is a Git repository.
    """

    template_fields: Sequence[str] = (
        *JOB_FIELDS,
        *("kubernetes_conn_id", "config_file", "cluster_context", "data_version", "git_revision"),
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"manifest": "yaml", "env": "json", "args": "json"}
    operator_extra_links = (
        PyTorchJobTrainingLink(),
        PyTorchJobLink(),
        PyTorchJobLogsLink(),
        PyTorchJobTensorBoardLink(),
    )
    ui_color = "#f3d9cf"
    code: Any
    checkpoints: Any

    def __init__(
        self,
        *,
        name: str | None = TrainingJob.name,
        namespace: str | None = TrainingJob.namespace,
        image: str | None = TrainingJob.image,
        image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None,
        command: Sequence[str] | None = TrainingJob.command,
        args: Sequence[str] | None = TrainingJob.args,
        working_dir: str | None = TrainingJob.working_dir,
        workers: int | str | None = TrainingJob.workers,
        nproc_per_node: int | str | None = TrainingJob.nproc_per_node,
        gpus: int | str | None = TrainingJob.gpus,
        gpu_resource: str | None = TrainingJob.gpu_resource,
        cpu: str | float | None = TrainingJob.cpu,
        memory: str | None = TrainingJob.memory,
        container_resources: Any = TrainingJob.container_resources,
        shared_memory: str | bool | None = TrainingJob.shared_memory,
        env: Mapping[str, Any] | Sequence[Any] | None = TrainingJob.env,
        env_from: Sequence[Any] | None = TrainingJob.env_from,
        volumes: Sequence[Any] | None = TrainingJob.volumes,
        volume_mounts: Sequence[Any] | None = TrainingJob.volume_mounts,
        code: Mapping[str, Any] | str | Path | None = None,
        restart_policy: Literal["Never", "OnFailure", "ExitCode", "Always"] | None = None,
        clean_pod_policy: Literal["Running", "All", "None"] | None = None,
        backoff_limit: int | str | None = TrainingJob.backoff_limit,
        active_deadline_seconds: float | timedelta | str | None = TrainingJob.active_deadline_seconds,
        ttl_seconds_after_finished: float | timedelta | str | None = TrainingJob.ttl_seconds_after_finished,
        suspend: bool | str | None = TrainingJob.suspend,
        elastic_policy: Mapping[str, Any] | None = None,
        service_account_name: str | None = TrainingJob.service_account_name,
        image_pull_secrets: Sequence[Any] | None = TrainingJob.image_pull_secrets,
        node_selector: Mapping[str, str] | None = TrainingJob.node_selector,
        tolerations: Sequence[Any] | None = TrainingJob.tolerations,
        affinity: Any = TrainingJob.affinity,
        priority_class_name: str | None = TrainingJob.priority_class_name,
        scheduler_name: str | None = TrainingJob.scheduler_name,
        queue_name: str | None = TrainingJob.queue_name,
        gang: bool | str | None = TrainingJob.gang,
        host_network: bool | str | None = TrainingJob.host_network,
        security_context: Any = TrainingJob.security_context,
        container_security_context: Any = TrainingJob.container_security_context,
        init_containers: Sequence[Any] | None = TrainingJob.init_containers,
        termination_grace_period_seconds: float | timedelta | str | None = TrainingJob.termination_grace_period_seconds,
        labels: Mapping[str, str] | None = TrainingJob.labels,
        annotations: Mapping[str, str] | None = TrainingJob.annotations,
        master: Mapping[str, Any] | None = None,
        worker: Mapping[str, Any] | None = None,
        pod_template: Any = TrainingJob.pod_template,
        model: str | None = TrainingJob.model,
        tfevents: str | None = TrainingJob.tfevents,
        checkpoints: str | None = TrainingJob.checkpoints,
        tensorboard: Mapping[str, Any] | bool | str | None = None,
        kind: Literal["PyTorchJob", "TrainJob", "PyTorchTrainingJob"] | None = None,
        runtime: str | None = TrainingJob.runtime,
        manifest: Mapping[str, Any] | str | os.PathLike[str] | None = TrainingJob.manifest,
        kubernetes_conn_id: str | None = DEFAULT_CONN_ID,
        in_cluster: bool | None = None,
        config_file: str | None = None,
        cluster_context: str | None = None,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        wait_for_completion: bool = True,
        exact_name: bool = False,
        on_finish_action: Literal["keep_job", "delete_job", "delete_succeeded_job"] = "keep_job",
        keep_running_pods: bool = False,
        start_timeout: float | None = None,
        queue_timeout: float | None = None,
        crash_loop_limit: int | None = None,
        progress: str | None = None,
        max_preemptions: int | None = None,
        no_progress_limit: int | None = None,
        retry_on: Sequence[str | type[BaseException]] | None = None,
        never_retry_on: Sequence[str | type[BaseException]] | None = None,
        ledger: DataLedger | None = None,
        data_version: str | None = None,
        git_revision: str | None = None,
        **kwargs: Any,
    ) -> None:
        given = locals()
        super().__init__(**kwargs)
        for field in JOB_FIELDS:
            setattr(self, field, self.given(field, given[field]))
        self.kubernetes_conn_id = kubernetes_conn_id
        self.in_cluster = in_cluster
        self.config_file = config_file
        self.cluster_context = cluster_context
        self.deferrable = deferrable
        self.wait_for_completion = wait_for_completion
        self.exact_name = exact_name
        self.on_finish_action = on_finish_action
        self.ledger = ledger
        self.data_version = data_version
        self.git_revision = git_revision
        self.keep_running_pods = keep_running_pods
        self.progress = progress
        with self.errors_as_given():
            self.limits = given_limits({name: self.given(name, given[name]) for name in LIMITS})
        self._retry_rules = (retry_on, never_retry_on)
        if self._retry_rules != (None, None):
            self._retrying()
        self._waiting = StoppableLoop()
        if not is_checked_later(self):
            self._check({name: value for name, value in given.items() if name not in JOB_FIELDS})

    def _check(self, own: Mapping[str, Any]) -> None:
        """Check the arguments that the DAG file contains, except values from templates and other tasks."""
        check_arguments(self, own)
        if not self.wait_for_completion and any(isinstance(outlet, EVENTFUL) for outlet in self.outlets):
            allowed = "allowed with an asset in `outlets`: True; its event has the model, which is not there yet"
            raise InvalidSpec.of("wait_for_completion", self.wait_for_completion, allowed)
        with self.errors_as_given():
            job = check_fields(self, self._fields())
        if job is not None:
            self._with_secrets(job)
        self._check_folder()

    def dry_run(self) -> None:
        """Print the manifest of attempt 1 and submit nothing."""
        from ptjob_provider.core import kinds
        from ptjob_provider.core.manifest import dump_manifest

        owner = Owner(instance="dry-run", ids={"dag_id": self.dag_id, "task_id": self.task_id}, labels={})
        job, installation = self._job(), config.load_installation()
        rendered = kinds.requested_kind(job, preferred=installation.kind).render(
            job, owner=owner, attempt=1, exact_name=self.exact_name, installation=installation
        )
        print(dump_manifest(rendered.manifest))  # noqa: T201 - a dry run prints

    def execute(self, context: Any) -> dict[str, Any]:
        """Submit or adopt the job, and wait for it here or in the triggerer."""
        with self._reporting_failure(context) as report:
            connection = ConnectionArgs.of(self).resolve()
            execution = self._execution(context, connection)
            self._confirm_claim(execution, context)
            if (result := execution.result_of_earlier_try()) is not None:
                return self._tell(execution, result, context)
            return self._train(execution, connection, context, report)

    def execute_complete(self, context: Any, event: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Take the trigger's event, add the log lines that the trigger has not confirmed, and finish.

        If the platform has ended the job, this try may make the next attempt, and defer again.
        """
        from ptjob_provider.airflow.outcome import JobEvent

        with self._reporting_failure(context) as report:
            connection = ConnectionArgs.of(self).resolve()
            execution = self._execution(context, connection)
            with execution.deciding_on_error():
                fired = JobEvent.from_dict(event)
            report.attempt = fired.submission.attempt
            execution.take(fired.submission)
            with execution.deciding_on_error():
                execution.add_rest_of_log(fired)
                outcome = fired.required_outcome()
            result = self._conclude(execution, fired.submission, outcome, context, report)
            return self._train(execution, connection, context, report) if result is None else result

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Any) -> Any:
        """Resume after a deferral; where Airflow could not run the trigger, the job is left running."""
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except TaskDeferralError:
            with self._reporting_failure(context):
                execution = self._execution(context, ConnectionArgs.of(self).resolve())
                with execution.deciding_on_error():
                    raise

    def _train(
        self, execution: JobExecution, connection: ResolvedConnection, context: Any, report: FailureReport
    ) -> dict[str, Any]:
        """Make one attempt after another until an outcome is to be reported, or defer."""
        while True:
            with execution.deciding_on_error():
                job = self._job(connection.namespace)
            submission = execution.submit(job, exact_name=self.exact_name)
            report.attempt = submission.attempt
            if not self.wait_for_completion:
                execution.leave(submission)
                execution.deliver()
                return {"job": submission.ref.to_dict(), "attempt": submission.attempt}
            execution.tell_begun(submission)
            if self.deferrable and execution.needs_waiting(submission):
                self._defer(submission, execution.deadline, connection.args)
            outcome = execution.wait(submission)
            if (result := self._conclude(execution, submission, outcome, context, report)) is not None:
                return result

    def _conclude(
        self,
        execution: JobExecution,
        submission: Submission,
        outcome: JobOutcome,
        context: Any,
        report: FailureReport,
    ) -> dict[str, Any] | None:
        """Report how an attempt ended, and return the result; None if this try makes the next attempt."""
        from ptjob_provider.airflow.outcome import push_progress

        report.result = outcome.result
        push_progress(context["ti"], submission, outcome, self.log)
        final = execution.after(submission, outcome)
        if final is not None:
            return self._tell(execution, execution.finish(submission, final), context)
        self._confirm_claim(execution, context)
        return None

    def on_kill(self) -> None:
        """Tell the waiting task to stop.

        Airflow calls this inside a signal handler: after a user's kill, in a drained worker, and after lost heartbeats.
        """
        self._waiting.wake()

    @contextmanager
    def _reporting_failure(self, context: Any) -> Iterator[FailureReport]:
        """Raise errors of the block as Airflow's, and push the XComs of a failure."""
        from ptjob_provider.airflow.outcome import failure_reported
        from ptjob_provider.airflow.task_session import airflow_errors

        with airflow_errors(), failure_reported(context, self.log) as report:
            yield report

    def _confirm_claim(self, execution: JobExecution, context: Any) -> None:
        if self.ledger is not None:
            with execution.deciding_on_error():
                self.ledger.confirm(context)
                self._input_uris = self.ledger.folders(context) if is_wanted() else ()

    def _tell(self, execution: JobExecution, result: dict[str, Any], context: Any) -> dict[str, Any]:
        """Report the success to the ledger, lineage and outlets, and return the result."""
        from ptjob_provider.airflow.outcome import push_result

        if self.ledger is not None:
            try:
                self.ledger.report(context)
                self._input_uris = self.ledger.folders(context) if is_wanted() else ()
            except PTJobError as error:  # the training has succeeded nevertheless
                self.log.warning("the training was not noted in the ledger: %s", error)
        git_revision = self.git_revision or result.get("git_revision") or revision_of(context["ti"], self.code)
        self._model_extra = model_extra(result, data_version=self.data_version, git_revision=git_revision)
        publish(context, self.outlets, self._model_extra, self.log)
        push_result(context["ti"], result, self.log)
        execution.deliver()
        return result

    def _execution(self, context: Any, connection: ResolvedConnection) -> JobExecution:
        from ptjob_provider.airflow.task_session import JobExecution

        return JobExecution(
            connection.backend,
            context,
            instance=config.read(),
            api_error_timeout=connection.api_error_timeout,
            log=self.log,
            waiting=self._waiting,
            on_finish_action=self.on_finish_action,
            limits=self._limits,
            keep_running_pods=self.keep_running_pods,
            leave_running=self._leave_running,
            retrying=self._retrying(),
            pattern=None if self.progress is None else pattern("progress", self.progress),
        )

    @property
    def _limits(self) -> Limits:
        from ptjob_provider.core.diagnosis import Limits

        is_wanted = not is_unset(self.checkpoints) or bool(self.retries)
        return Limits(**self.limits).with_default_preemptions(is_wanted=is_wanted)

    def _retrying(self) -> Retrying:
        from ptjob_provider.core.diagnosis import Retrying

        return Retrying.of(*self._retry_rules)

    @property
    def _leave_running(self) -> LeaveRunning | None:
        """The part of the job that keeps running when no task waits for it."""
        from ptjob_provider.core.run.orphans import LeaveRunning

        if not self.wait_for_completion:
            return LeaveRunning.JOB
        return LeaveRunning.PODS if self.keep_running_pods else None

    def _fields(self) -> dict[str, Any]:
        fields = {field: getattr(self, field) for field in JOB_FIELDS}
        if fields["name"] is None and fields["manifest"] is None:
            fields["name"] = stem_of(self.task_id)
        return fields

    def _job(self, namespace: str | None = None) -> TrainingJob:
        from ptjob_provider.core.code.folder import with_packed_folder

        job = TrainingJob.parse(**self._fields()).in_namespace(namespace)
        mask_credentials(job)
        job = self._with_secrets(job)
        return with_packed_folder(job, beside=Path(self.dag.folder)) if CodeSource.is_folder(self.code) else job

    def _with_secrets(self, job: TrainingJob) -> TrainingJob:
        return with_secrets(job, self.secrets or (), self.configmaps or ())

    def _check_folder(self) -> None:
        """Check that a folder in `code` is beside the DAG file, unless its name is a template."""
        if CodeSource.is_folder(self.code) and self.has_dag() and "{{" not in str(self.code):  # type: ignore[no-untyped-call]
            CodeSource.parse("code", self.code).folder_beside(Path(self.dag.folder))

    def _defer(self, submission: Submission, deadline: datetime | None, args: ConnectionArgs) -> NoReturn:
        from ptjob_provider.airflow.triggers import PyTorchJobTrigger

        trigger = PyTorchJobTrigger(
            **args.to_dict(),
            submission=submission.to_dict(),
            deadline=deadline.isoformat() if deadline else None,
            limits={**self.limits, "max_preemptions": self._limits.max_preemptions},
            keep_running_pods=self.keep_running_pods,
            progress=self.progress,
            deferred_at=datetime.now(UTC).isoformat(),
        )
        self.defer(trigger=trigger, method_name="execute_complete")
