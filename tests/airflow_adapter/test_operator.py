"""Tests of the operator: its parameters are the job's fields, and its template fields are what users would template."""

from __future__ import annotations

import inspect
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, AirflowTaskTimeout, TaskDeferred
from airflow.sdk import DAG

from airflow_adapter.stand_ins import StandInTaskInstance, context, end_job, event_of, job_object, operator, submitted
from ptjob_provider.airflow.connection import ConnectionArgs
from ptjob_provider.airflow.operators import PyTorchJobOperator
from ptjob_provider.airflow.outcome import JobEvent
from ptjob_provider.airflow.sensors import PyTorchJobSensor
from ptjob_provider.airflow.triggers import PyTorchJobTrigger
from ptjob_provider.core.diagnosis import Cause, Diagnosis
from ptjob_provider.core.errors import ClusterUnavailable, InvalidSpec
from ptjob_provider.core.history import PodHistory
from ptjob_provider.core.identity import UNFOLLOWED_ANNOTATION
from ptjob_provider.core.outputs.result import JobResult, build_result
from ptjob_provider.core.run.outcome import Outcome
from ptjob_provider.core.run.submit import Submission
from ptjob_provider.core.spec import JOB_FIELDS
from ptjob_provider.core.status import JobPhase, JobStatus

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_adapter.stand_ins import FakeComms
    from fakes import ScriptedBackend

OWN = {
    *("kubernetes_conn_id", "in_cluster", "config_file", "cluster_context"),
    *("deferrable", "wait_for_completion", "exact_name", "on_finish_action", "keep_running_pods"),
    *("start_timeout", "queue_timeout", "crash_loop_limit", "max_preemptions", "no_progress_limit"),
    "progress",
    *("retry_on", "never_retry_on"),
    *("ledger", "data_version", "git_revision"),
}
PARAMETERS = set(inspect.signature(PyTorchJobOperator.__init__).parameters) - {"self", "kwargs"}
MANIFEST = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: "{{ ds }}"}
spec: {pytorchReplicaSpecs: {Master: {template: {spec: {containers: [{name: pytorch, image: digits}]}}}}}
"""


def test_the_parameters_are_the_jobs_fields_and_a_few_of_its_own() -> None:
    """A new field of the job cannot be forgotten here."""
    assert set(JOB_FIELDS) | OWN == PARAMETERS


def test_every_field_of_the_job_is_a_template() -> None:
    """So are the arguments that select the cluster and describe the model."""
    way = {"kubernetes_conn_id", "config_file", "cluster_context"}
    assert set(PyTorchJobOperator.template_fields) == {*JOB_FIELDS, *way, "data_version", "git_revision"}


def test_a_folder_that_is_not_beside_the_dag_is_refused_when_the_dag_is_parsed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error has the whole path; a templated name is not checked, and an existing folder is packed at run time."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "train.py").touch()
    with DAG("beside", schedule=None) as dag:
        dag.fileloc = str(tmp_path / "dag.py")
        with pytest.raises(InvalidSpec, match=rf"code: 'projct' is not allowed; there is no folder {tmp_path}/projct"):
            operator(task_id="misspelt", code="projct")
        operator(task_id="templated", code="{{ params.folder }}")
        operator(task_id="there", code="project").dry_run()

    assert 'ptjob-provider/code: \'{"digest": "sha256:' in capsys.readouterr().out


@pytest.mark.parametrize("operator", [PyTorchJobOperator, PyTorchJobSensor])
def test_every_parameter_is_documented_with_its_default(operator: type) -> None:
    """Editors show it; `scripts/signatures.py` writes the job's fields."""
    section = inspect.cleandoc(str(operator.__doc__)).partition("\nArgs:\n")[2]
    entries = dict(re.findall(r"^    (\w+): (.+(?:\n {8}.+)*)", section, re.MULTILINE))
    parameters = set(inspect.signature(operator.__init__).parameters) - {"self", "kwargs"}

    assert set(entries) == parameters
    assert {name for name, text in entries.items() if not re.search(r"None:|[Dd]efault|Required", text)} == set()


def test_every_field_of_the_result_is_documented() -> None:
    """Authors of downstream tasks read it in the operator's docstring."""
    submission, status = Submission.of(job_object()), JobStatus(phase=JobPhase.SUCCEEDED)
    now = datetime.now(UTC)
    result = build_result(submission, status=status, history=PodHistory(), report=None, diagnosis=None, now=now)

    assert {name for name in result if f"`{name}`" not in str(PyTorchJobOperator.__doc__)} == set()
    assert set(result) | {"return_value"} == set(JobResult.__annotations__)


def test_no_template_field_is_changed_by_the_constructor() -> None:
    """Airflow renders the user's value; a changed one would be rendered late or twice."""
    given: dict[str, Any] = {field: f"{{{{ params.{field} }}}}" for field in JOB_FIELDS} | {
        "kubernetes_conn_id": "mine"
    }

    task = PyTorchJobOperator(task_id="train", **given)

    assert {name: getattr(task, name) for name in given} == given


def test_a_manifests_file_is_read_beside_the_dag(tmp_path: Path) -> None:
    tmp_path.joinpath("job.yaml").write_text(MANIFEST)
    dag = DAG("training", schedule=None)
    dag.fileloc = str(tmp_path / "training.py")
    task = operator(manifest="job.yaml", dag=dag)

    task.resolve_template_files()
    task.render_template_fields({"ds": "digits"})

    assert yaml.safe_load(str(task.manifest))["metadata"]["name"] == "digits"


def test_an_argument_that_ends_in_yaml_stays_an_argument(tmp_path: Path) -> None:
    """Programs read configuration files from their image; Airflow must not load them as templates."""
    dag = DAG("training", schedule=None)
    dag.fileloc = str(tmp_path / "training.py")
    task = operator(args=["--config", "train.yaml"], command=["run.yaml"], model="pvc://c/m.yml", dag=dag)

    task.resolve_template_files()
    task.render_template_fields({})

    assert (task.args, task.command, task.model) == (["--config", "train.yaml"], ["run.yaml"], "pvc://c/m.yml")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("task_id", "begins"),
    [
        ("train_it", "train-it-"),
        ("Group.Train", "group-train-"),
        ("2nd", "job-2nd-"),
        (f"{'group.' * 12}train", "group-group-group-"),
    ],
)
def test_a_job_without_a_name_is_named_for_its_task(backend: ScriptedBackend, task_id: str, begins: str) -> None:
    operator(task_id=task_id, wait_for_completion=False).execute(context())

    ((_, name),) = backend.jobs
    assert name.startswith(begins)


def test_the_instances_of_a_mapped_task_have_a_job_each(backend: ScriptedBackend) -> None:
    """They have the same task id and run id and differ only in their map index."""
    for index in (-1, 0, 1):
        operator(wait_for_completion=False).execute(context(StandInTaskInstance(map_index=index)))

    assert len(backend.jobs) == 3


def test_without_waiting_the_reference_is_the_result(backend: ScriptedBackend) -> None:
    ti = StandInTaskInstance()

    result = operator(namespace="team", wait_for_completion=False).execute(context(ti))

    assert result["job"] == {"kind": "PyTorchJob", "namespace": "team", "name": ti.pushed["job_name"], "uid": "uid-1"}
    assert result["attempt"] == 1


def test_the_training_page_is_linked_before_the_task_waits(backend: ScriptedBackend) -> None:
    """Airflow itself pushes links when the process of the task ends."""
    ti = StandInTaskInstance(run_id="manual__2026-11-27T02:00:00+00:00")

    operator(wait_for_completion=False).execute(context(ti))

    assert "run_id=manual__2026-11-27T02%3A00%3A00%2B00%3A00" in ti.pushed.get("_link_PyTorchJobTrainingLink", "")


def test_deferring_hands_everything_to_the_trigger(backend: ScriptedBackend, comms: FakeComms) -> None:
    ti = StandInTaskInstance()
    backend.tensorboard_url = "http://10.0.0.7:30131/"

    way = {"kubernetes_conn_id": "gpus", "in_cluster": False, "config_file": "/kube", "cluster_context": "night"}
    shown = {"tfevents": "pvc://models/logs", "tensorboard": True}

    with pytest.raises(TaskDeferred) as deferred:
        operator(deferrable=True, start_timeout=7, max_preemptions=2, keep_running_pods=True, **shown, **way).execute(
            context(ti)
        )

    trigger = deferred.value.trigger
    assert isinstance(trigger, PyTorchJobTrigger)
    assert (trigger.submission["ref"]["uid"], ti.pushed["job_uid"]) == ("uid-1", "uid-1")
    assert trigger.submission["tensorboard_url"] == ti.pushed["tensorboard_url"] == backend.tensorboard_url
    assert ConnectionArgs.of(trigger).to_dict() == way
    assert trigger.limits == {"start_timeout": 7, "max_preemptions": 2}
    assert (trigger.keep_running_pods, trigger.hands_off) == (True, False)
    assert deferred.value.timeout is None
    assert "diagnosis" not in ti.pushed  # Airflow implements a deferral as an exception


def test_a_job_that_has_ended_is_not_deferred_for(backend: ScriptedBackend, comms: FakeComms) -> None:
    given = context()
    submitted(backend, given)
    end_job(backend)

    assert operator(deferrable=True).execute(given)["phase"] == "Succeeded"
    assert backend.created == 1


@pytest.mark.parametrize("state", ["failed", "success", "restarting"])
def test_a_task_that_was_marked_before_it_defers_leaves_no_job(
    backend: ScriptedBackend, comms: FakeComms, state: str
) -> None:
    """No trigger would exist to stop it, and the worker's next heartbeat would be too late."""
    comms.state, given = state, context()

    with pytest.raises(AirflowException, match=f"was deleted: the task is {state}"):
        operator(deferrable=True).execute(given)

    assert not backend.jobs
    assert given["ti"].pushed["diagnosis"]["cause"] == "stopped"


def test_an_api_server_that_is_away_does_not_keep_a_task_from_deferring(
    backend: ScriptedBackend, comms: FakeComms
) -> None:
    comms.refuses = True

    with pytest.raises(TaskDeferred):
        operator(deferrable=True).execute(context())

    assert backend.jobs


@pytest.mark.parametrize("outcome", [Outcome.SUCCEEDED, Outcome.FAILED])
def test_the_resumed_task_knows_the_verdict_without_the_cluster(backend: ScriptedBackend, outcome: Outcome) -> None:
    """The API server may be unavailable; only the rest of the log is lost then, and the log says so."""
    given = context()
    why = Diagnosis.of(Cause.EXIT_CODE, "digits-master-0 exited with code 3")
    event = event_of(submitted(backend, given), outcome, result={"phase": outcome}, diagnosis=why)
    backend.log_error = backend.get_error = ClusterUnavailable("no answer")
    task = operator()

    if outcome is Outcome.SUCCEEDED:
        assert task.execute_complete(given, event) == {"phase": outcome}
    else:
        with pytest.raises(AirflowException, match="digits-master-0 exited with code 3"):
            task.execute_complete(given, event)


@pytest.mark.parametrize(
    ("outcome", "cause", "arguments", "raised"),
    [
        (Outcome.FAILED, Cause.PYTHON_EXCEPTION, {}, AirflowException),
        (Outcome.FAILED, Cause.PYTHON_EXCEPTION, {"never_retry_on": [OSError]}, AirflowFailException),
        (Outcome.FAILED, Cause.OUT_OF_MEMORY, {}, AirflowFailException),
        (Outcome.FAILED, Cause.OUT_OF_MEMORY, {"retry_on": ["out_of_memory"]}, AirflowException),
        (Outcome.TIMED_OUT, Cause.TIMED_OUT, {}, AirflowTaskTimeout),
        (Outcome.TIMED_OUT, Cause.TIMED_OUT, {"never_retry_on": ["timed_out"]}, AirflowFailException),
    ],
)
def test_the_authors_lists_decide_on_a_retry(
    backend: ScriptedBackend, outcome: Outcome, cause: Cause, arguments: dict[str, Any], raised: type[BaseException]
) -> None:
    """`retry_on` and `never_retry_on` override the diagnosis, through Airflow's own exceptions."""
    given = context()
    why = Diagnosis.of(cause, "it ended", exception="ConnectionError" if cause is Cause.PYTHON_EXCEPTION else "")
    event = event_of(submitted(backend, given), outcome, diagnosis=why)

    with pytest.raises(raised) as caught:
        operator(**arguments).execute_complete(given, event)

    assert type(caught.value) is raised


@pytest.mark.parametrize("retryable", [True, False])
@pytest.mark.parametrize(("max_tries", "has_next"), [(3, True), (0, False)])
def test_a_trigger_that_failed_leaves_the_job_running(
    backend: ScriptedBackend, max_tries: int, *, has_next: bool, retryable: bool
) -> None:
    """The job itself is fine; if no next try adopts it, the error says that it is running."""
    given = context(StandInTaskInstance(max_tries=max_tries))
    event = JobEvent(submission=submitted(backend, given), error="the trigger failed: OSError", retryable=retryable)

    with pytest.raises(AirflowException, match="the trigger failed: OSError") as raised:
        operator().execute_complete(given, event.to_dict())

    assert backend.jobs
    assert ("was left running" in str(raised.value)) is not (has_next and retryable)
    assert given["ti"].pushed["diagnosis"]["cause"] == "trigger_failed"


@pytest.mark.parametrize("event", [None, {"status": "success"}, {"conclusion": None}])
def test_the_resumed_task_never_takes_a_foreign_event_for_a_success(
    backend: ScriptedBackend, comms: FakeComms, event: dict[str, Any] | None
) -> None:
    """After the last try the job is marked as unfollowed, although the event does not name it."""
    given = context(StandInTaskInstance(max_tries=0))
    submitted(backend, given)

    with pytest.raises(AirflowFailException, match="ptjob list"):
        operator().execute_complete(given, event)

    assert backend.jobs
    assert UNFOLLOWED_ANNOTATION in str(backend.patches)
    assert given["ti"].pushed["diagnosis"]["cause"] == "error"


@pytest.mark.parametrize(
    "fields", [{"workers": -1}, {"name": "No Name"}, {"model": "pvc:///m.pt"}, {"model": "/nowhere/m.pt"}]
)
def test_a_template_of_a_wrong_value_fails_without_a_retry_before_anything_starts(
    backend: ScriptedBackend, fields: dict[str, Any]
) -> None:
    ((field, value),) = fields.items()
    task = operator(**{field: "{{ params.wrong }}"})
    setattr(task, field, value)

    with pytest.raises(AirflowFailException, match=f"{field}.*{str(value)[:6]}"):
        task.execute(context())

    assert backend.created == 0


def test_a_wrong_value_marks_the_running_job_of_an_earlier_try(backend: ScriptedBackend) -> None:
    """No further try follows, so the orphan search spares the job until a user decides."""
    given = context()
    submitted(backend, given)
    task = operator(workers="{{ params.wrong }}")
    task.workers = -1

    with pytest.raises(AirflowFailException, match=r"workers: -1 .* was left running"):
        task.execute(given)

    assert backend.jobs
    assert UNFOLLOWED_ANNOTATION in backend.patches[-1]["metadata"]["annotations"]
