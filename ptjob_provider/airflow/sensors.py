"""`PyTorchJobSensor`: wait for a training job submitted elsewhere, without changing it."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from airflow.sdk import BaseSensorOperator, PokeReturnValue

from ptjob_provider.airflow import compat, config
from ptjob_provider.airflow.arguments import check_arguments, check_names, is_checked_later
from ptjob_provider.airflow.compat import conf
from ptjob_provider.airflow.config import local_config
from ptjob_provider.airflow.connection import DEFAULT_CONN_ID, ConnectionArgs
from ptjob_provider.airflow.links import (
    JOB_NAME,
    JOB_NAMESPACE,
    JOB_UID,
    PyTorchJobLink,
    PyTorchJobLogsLink,
    PyTorchJobTrainingLink,
)
from ptjob_provider.airflow.masking import masked, with_texts_masked
from ptjob_provider.airflow.outcome import (
    JobEvent,
    SensedFailure,
    SensedReplacement,
    failure_reported,
    log_success,
    push_progress,
    push_result,
)
from ptjob_provider.airflow.task_log import TaskLog, add_rest_of_log
from ptjob_provider.airflow.task_session import airflow_errors
from ptjob_provider.airflow.triggers import PyTorchJobTrigger
from ptjob_provider.core import kinds
from ptjob_provider.core.errors import InvalidSpec, JobFailed, JobNotFound
from ptjob_provider.core.identity import JobRef, is_object_name, owner_in
from ptjob_provider.core.outgoing import outgoing
from ptjob_provider.core.run.api_errors import ApiErrors
from ptjob_provider.core.run.follow import follow
from ptjob_provider.core.run.lookup import find_job
from ptjob_provider.core.run.outcome import Outcome, deadline_after, raise_for
from ptjob_provider.core.run.snapshot import look
from ptjob_provider.core.run.submit import Submission
from ptjob_provider.core.run.training_state import TrainingState
from ptjob_provider.core.spec import kind_name
from ptjob_provider.core.status import later

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ptjob_provider.airflow.connection import ResolvedConnection
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.run.outcome import JobOutcome
    from ptjob_provider.core.run.snapshot import Snapshot

_JOB_KEY = "ptjob_seen"
"""Key in the task's state store, for the job that the task waits for; outlives tries and reschedules."""


class PyTorchJobSensor(BaseSensorOperator):
    """Waits until a job submitted elsewhere succeeds, and returns its result.

    The job's current state counts, even if it has already ended. The result is that of `PyTorchJobOperator` plus the
    job's owner and replicas. The sensor waits for a job that does not exist yet. A job that failed, was deleted or was
    replaced by another of the same name fails the task with the diagnosis and without a retry. The sensor never changes
    the job, whatever happens to the task. On a cluster, the outputs of another installation's job are those that its
    own task has recorded in the job's annotations; no pod is started to inspect them. Rank 0's log appears in the
    task's log after the job's end, or while it runs if deferrable.

    Args:
        job_name: the job's full name, such as another task's XCom `job_name`. Required.
        kind: `PyTorchJob`, `TrainJob` or `PyTorchTrainingJob`, in any case. None: the first of these that has a job of
            this name, `[ptjob] kind` before the others.
        namespace: the job's namespace. None: the connection's, else that of Airflow's pod, else `default`.
        kubernetes_conn_id: connection to the cluster; the local back-end ignores it. Default `kubernetes_default`.
        in_cluster: overrides the connection: use the service account of the pod that Airflow's process runs in. None:
            the connection's value.
        config_file: overrides the connection: path of a kubeconfig, on workers and triggerers. None: the connection's.
        cluster_context: overrides the connection: the kubeconfig's context. None: the connection's.
        deferrable: wait in the triggerer as soon as the job exists. Until then the sensor polls every `poke_interval`
            seconds (with `mode="reschedule"` without a worker slot). Default `[operators] default_deferrable`.
    """

    template_fields: Sequence[str] = (
        *("job_name", "namespace"),
        *("kubernetes_conn_id", "config_file", "cluster_context"),
    )
    operator_extra_links = (PyTorchJobTrainingLink(), PyTorchJobLink(), PyTorchJobLogsLink())
    ui_color = "#f3d9cf"

    def __init__(
        self,
        *,
        job_name: str,
        kind: Literal["PyTorchJob", "TrainJob", "PyTorchTrainingJob"] | None = None,
        namespace: str | None = None,
        kubernetes_conn_id: str | None = DEFAULT_CONN_ID,
        in_cluster: bool | None = None,
        config_file: str | None = None,
        cluster_context: str | None = None,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        given = locals()
        check_names(type(self), kwargs)
        super().__init__(**kwargs)
        self.job_name = job_name
        self.kind = kind and kind_name("kind", kind)
        self.namespace = namespace
        self.kubernetes_conn_id = kubernetes_conn_id
        self.in_cluster = in_cluster
        self.config_file = config_file
        self.cluster_context = cluster_context
        self.deferrable = deferrable
        if not is_checked_later(self):
            check_arguments(self, given)

    def poke(self, context: Any) -> bool | PokeReturnValue:
        """Check once whether the job exists, is still the same job, and has ended."""
        with airflow_errors(), failure_reported(context, self.log) as report:
            for name, value in (("job_name", self.job_name), ("namespace", self.namespace or "default")):
                if not is_object_name(str(value)):
                    raise InvalidSpec.of(name, value, "allowed: a full name; a template that finds none renders None")
            connection = self._connection()
            expected = self._expected(context)
            job = asyncio.run(self._find(connection, expected.get("kind")))
            self._check_same(context, job, expected)
            if job is None:
                return False
            submission = Submission.of(job)
            if kinds.read_status(job).phase.is_terminal:
                outcome = asyncio.run(self._read(connection, submission))
                report.attempt, report.result = submission.attempt, outcome.result
                push_progress(context["ti"], submission, outcome, self.log)
                result = self._finish(connection, submission, outcome)
                push_result(context["ti"], result, self.log)
                return PokeReturnValue(is_done=True, xcom_value=result)
            if self.deferrable:
                self._defer(context, submission, connection.args)
            return False

    def execute_complete(self, context: Any, event: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Take the trigger's event, add the log lines that the trigger has not confirmed, and finish."""
        with airflow_errors(), failure_reported(context, self.log) as report:
            fired = JobEvent.from_dict(event)
            report.attempt = fired.submission.attempt
            report.result = fired.outcome.result if fired.outcome else None
            connection = self._connection()
            asyncio.run(add_rest_of_log(connection.backend, fired, task_instance=context["ti"], logger=self.log))
            if fired.outcome:
                push_progress(context["ti"], fired.submission, fired.outcome, self.log)
            result = self._finish(connection, fired.submission, fired.required_outcome())
            push_result(context["ti"], result, self.log)
            return result

    def _connection(self) -> ResolvedConnection:
        """Return the connection; its default namespace becomes the task's if the task names none."""
        connection = ConnectionArgs.of(self).resolve()
        self.namespace = self.namespace or connection.namespace or kinds.DEFAULT_NAMESPACE
        return connection

    def _expected(self, context: Any) -> Mapping[str, Any]:
        """Return the stored fields of the job that the task waits for; {} if it has seen none since its last clear."""
        stored = compat.task_state(context).get(_JOB_KEY) or {}
        return stored if stored.get("clear_number") == context["ti"].max_tries else {}

    def _errors(self, connection: ResolvedConnection) -> ApiErrors:
        return ApiErrors(f"{self.namespace}/{self.job_name}", self.log.warning, timeout=connection.api_error_timeout)

    async def _find(self, connection: ResolvedConnection, kind: str | None) -> Manifest | None:
        """Return the job, of this kind if one was seen; repeat a refused request for a while.

        A refusal of the kind that was seen is no deletion, although other kinds have no such job.
        """
        preferred = config.SECTION_OPTIONS.kind()
        try:
            return await self._errors(connection).answer(
                lambda: find_job(
                    connection.backend,
                    str(self.namespace),
                    self.job_name,
                    kind=kind or self.kind,
                    preferred=preferred,
                ),
                though_away=False,
            )
        except JobNotFound as error:
            self.log.info("%s", error)
            return None

    def _check_same(self, context: Any, job: Manifest | None, expected: Mapping[str, Any]) -> None:
        """Store the first job observed, and accept no other job until the task is cleared.

        Raises:
            SensedReplacement: that job was deleted, or another job has its name.
        """
        ti = context["ti"]
        uid = job["metadata"]["uid"] if job else None
        if expected and uid != expected["uid"]:
            instead = f"; another job, uid {uid}, has its name now" if uid else ""
            text = f"the job that was waited for, uid {expected['uid']}, was deleted{instead}"
            raise SensedReplacement(
                f"{self.namespace}/{self.job_name}: {text}. Whether it had succeeded is unknown. Clear this "
                "task to wait for the job that is there then."
            )
        if job is not None and not expected:
            fields = {"uid": uid, "kind": JobRef.of(job).kind, "clear_number": ti.max_tries}
            compat.task_state(context).set(_JOB_KEY, fields)
            for key, value in ((JOB_NAME, self.job_name), (JOB_NAMESPACE, self.namespace), (JOB_UID, uid)):
                ti.xcom_push(key=key, value=value)
            self.log.info("%s/%s is there, uid %s", self.namespace, self.job_name, uid)

    async def _read(self, connection: ResolvedConnection, submission: Submission) -> JobOutcome:
        """Write the log of a job that has ended, and return its outcome."""
        sink = TaskLog(self.log)
        outcome = await follow(
            connection.backend,
            submission,
            sink=sink,
            hands_off=True,
            api_error_timeout=connection.api_error_timeout,
            mask=masked,
            state=TrainingState(),
        )
        sink.flush()
        return outcome

    def _finish(self, connection: ResolvedConnection, submission: Submission, outcome: JobOutcome) -> dict[str, Any]:
        """Return the result of a job that succeeded, with its outputs if the job still exists.

        Raises:
            SensedFailure: the job failed, or a declared output is missing; a retry would have the same result.
            OutputsNotVerified: the outputs could not be inspected; a retry inspects them again.
        """
        try:
            raise_for(submission.ref, outcome)
        except JobFailed as error:
            raise SensedFailure(submission.ref, error.diagnosis) from None
        snapshot: Snapshot | None = None
        with contextlib.suppress(JobNotFound):  # a short TTL may have removed it
            reading = self._errors(connection).answer(
                lambda: self._observe(connection, submission.ref), though_away=False
            )
            snapshot = asyncio.run(reading)
        if snapshot is None or snapshot.submission.ref != submission.ref:
            result = outcome.result or {}
        elif snapshot.diagnosis is not None:
            raise SensedFailure(submission.ref, snapshot.diagnosis)
        else:
            if snapshot.unverified:
                raise_for(submission.ref, replace(outcome, outcome=Outcome.UNVERIFIED, detail=snapshot.unverified))
            result = with_texts_masked(snapshot.to_dict())
        left = dict(outgoing(result, self.log.warning))
        log_success(self.log, submission.ref, left)
        return left

    async def _observe(self, connection: ResolvedConnection, ref: JobRef) -> Snapshot:
        """Return the job with its outputs: as recorded by its own task, else as they are now.

        On a cluster, inspecting outputs starts a pod, which the sensor must not do for a job that it does not own.
        """
        snapshot = await look(connection.backend, ref.namespace, ref.name, kind=ref.kind, inspect=False)
        if snapshot.report is None and (local_config() is not None or self._is_own(snapshot)):
            return await look(connection.backend, ref.namespace, ref.name, kind=ref.kind)
        return snapshot

    def _is_own(self, snapshot: Snapshot) -> bool:
        instance = config.known()
        return instance is not None and instance.has(owner_in(snapshot.job).instance)

    def _defer(self, context: Any, submission: Submission, args: ConnectionArgs) -> NoReturn:
        trigger = PyTorchJobTrigger(
            **args.to_dict(),
            submission=outgoing(submission.to_dict()),
            hands_off=True,
            deferred_at=datetime.now(UTC).isoformat(),
        )
        self.defer(trigger=trigger, method_name="execute_complete", timeout=self._time_left(context))

    def _time_left(self, context: Any) -> timedelta | None:
        """Return the time left until `timeout` or `execution_timeout`, whichever is earlier; None if neither ends."""
        ti, now = context["ti"], datetime.now(UTC)
        began: datetime = (ti.get_first_reschedule_date(context) if self.reschedule else None) or ti.start_date
        ends = later(began, self.timeout), deadline_after(ti.start_date, self.execution_timeout)
        left = [end - now for end in ends if end]
        return max(timedelta(0), min(left)) if left else None
