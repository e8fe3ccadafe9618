"""Tests of the task that claims batches before a training: its requests to Airflow, and missing answers."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, AirflowSkipException
from airflow.sdk import DAG, Asset, BaseOperator, ObjectStoragePath
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import (
    AssetEventsResult,
    DRCount,
    ErrorResponse,
    GetAssetEventByAsset,
    GetDRCount,
    GetTaskStates,
    GetVariable,
    PutVariable,
    TaskStatesResult,
    VariableResult,
)
from airflow.sdk.execution_time.context import TriggeringAssetEventsAccessor
from airflow.sdk.execution_time.supervisor import set_supervisor_comms
from airflow.sdk.io import attach
from fsspec.implementations.memory import MemoryFileSystem

from airflow_adapter.stand_ins import StandInTaskInstance, context
from airflow_versions import HAS_PAGES_OF_EVENTS, since
from ptjob_provider.airflow import config
from ptjob_provider.airflow.operators import PyTorchJobOperator
from ptjob_provider.airflow.task_session import JobExecution
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.retraining import operators as adapter
from ptjob_provider.retraining.ledger import LedgerStore
from ptjob_provider.retraining.operators import ClaimBatchesOperator, DataLedger
from ptjob_provider.retraining.reservations import LIST_LIMIT, Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from fakes import ScriptedBackend

pytestmark = pytest.mark.usefixtures("airflow")

ARRIVED = Asset("arrived", uri="s3://bucket/in")
NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


@dataclass
class StandInAirflow:
    """Fake execution API for a task, with the runs and events of the test.

    Attributes:
        runs: the state of each run and those of its training's task instances.
        events: the asset's events as (time, extra), in any order.
        variables: the Variables by key.
        is_away: every request raises an error.
        questions: the requests so far.
    """

    runs: dict[str, tuple[str, list[str | None]]] = field(default_factory=dict)
    events: list[tuple[datetime, Any]] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    is_away: bool = False
    questions: list[Any] = field(default_factory=list)

    def send(self, message: Any) -> Any:
        """Answer a task process."""
        self.questions.append(message)
        if self.is_away:
            raise AirflowRuntimeError(ErrorResponse(detail={"message": "the API server is away"}))
        answers = {
            GetTaskStates: self._states,
            GetDRCount: self._count,
            GetAssetEventByAsset: self._events,
            GetVariable: self._variable,
            PutVariable: lambda message: self.variables.update({message.key: message.value}),
        }
        return answers[type(message)](message)

    def happen(self, *names: str, at: datetime = NOON) -> None:
        """Add an event that announces these batches."""
        batches = [{"id": f"{name}@1", "uri": f"s3://bucket/in/{name}"} for name in names]
        self.events.append((at, {"from_trigger": True, "payload": {"batches": batches}}))

    def _variable(self, message: GetVariable) -> VariableResult | ErrorResponse:
        found = self.variables.get(message.key)
        missing = ErrorResponse(error=ErrorType.VARIABLE_NOT_FOUND)
        return missing if found is None else VariableResult(key=message.key, value=found)

    def _states(self, message: GetTaskStates) -> TaskStatesResult:
        (run_id,), (task_id,) = message.run_ids or (), message.task_ids or ()
        states = self.runs.get(run_id, ("", []))[1]
        names = [task_id] if len(states) == 1 else [f"{task_id}_{index}" for index in range(len(states))]
        return TaskStatesResult(task_states={run_id: dict(zip(names, states, strict=True))} if states else {})

    def _count(self, message: GetDRCount) -> DRCount:
        found = [self.runs[run_id][0] for run_id in message.run_ids or () if run_id in self.runs]
        return DRCount(count=sum(message.states is None or state in message.states for state in found))

    def _events(self, message: GetAssetEventByAsset) -> AssetEventsResult:
        assert (message.name, message.uri) == ("arrived", "s3://bucket/in")
        after, limit = None, None
        if HAS_PAGES_OF_EVENTS:
            assert message.ascending
            after, limit = message.after, message.limit
        listed = sorted(((at, extra) for at, extra in self.events if not after or at >= after), key=by_time)
        asset = {"name": "arrived", "uri": "s3://bucket/in", "group": "asset"}
        events = [
            {"id": number, "timestamp": at, "extra": extra, "asset": asset, "created_dagruns": []}
            for number, (at, extra) in enumerate(listed[:limit])
        ]
        return AssetEventsResult.model_validate({"asset_events": events})


def by_time(event: tuple[datetime, Any]) -> datetime:
    return event[0]


@pytest.fixture
def airflow() -> Iterator[StandInAirflow]:
    stand_in = StandInAirflow()
    with set_supervisor_comms(stand_in):
        yield stand_in


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'ledger.db'}"


def claim(url: str, run_id: str = "now", *, triggering: Any = None, **more: Any) -> dict[str, Any]:
    """Execute the claim task in a run."""
    with DAG("retrain", schedule=None):
        task = ClaimBatchesOperator(**{"task_id": "claim", "ledger": url, "inlets": [ARRIVED], **more})
        BaseOperator(task_id="train")
    given = context(StandInTaskInstance(dag_id="retrain", task_id="claim", run_id=run_id))
    return task.execute({**given, "triggering_asset_events": triggering or {}})


@pytest.fixture
def held(airflow: StandInAirflow, url: str) -> StandInAirflow:
    """Return an Airflow whose run `before`, of which it no longer knows, has claimed b1; b2 has arrived since."""
    airflow.happen("b1")
    claim(url, "before")
    airflow.happen("b2")
    return airflow


def names(handover: dict[str, Any]) -> list[str]:
    return [uri.rpartition("/")[2] for uri in handover["new"]]


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ({"before": ("running", ["failed"])}, ["b2"]),
        ({"before": ("failed", ["success", "failed"])}, ["b1", "b2"]),
        ({}, ["b1", "b2"]),
    ],
    ids=["it may train again", "it has failed", "it is gone"],
)
def test_the_state_of_a_run_in_airflow_decides_whether_its_batches_are_free(
    held: StandInAirflow, url: str, runs: dict[str, Any], expected: list[str]
) -> None:
    """See tests/core/test_ledger.py for all states."""
    held.runs = runs

    assert names(claim(url)) == expected


def test_a_run_is_not_forgotten_because_its_variable_cannot_be_read(
    airflow: StandInAirflow, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow's own reader returns its default then; the batches of a run that is gone would stay reserved for ever."""
    airflow.happen("b1")
    claim(url, "before")
    with monkeypatch.context() as patch:
        patch.setattr(airflow, "_variable", Mock(side_effect=AirflowRuntimeError(ErrorResponse())))
        with pytest.raises(AirflowException, match="how the runs stand"):
            claim(url)

    assert names(claim(url)) == ["b1"]


@pytest.fixture
def staging(airflow: StandInAirflow, monkeypatch: pytest.MonkeyPatch) -> Callable[..., AbstractContextManager[None]]:
    """Return a context in which another Airflow, `staging`, executes the tasks; its own runs have failed."""
    other = StandInAirflow(events=airflow.events)

    @contextmanager
    def execute(*run_ids: str) -> Iterator[None]:
        other.runs = {run_id: ("failed", ["failed"]) for run_id in run_ids}
        with monkeypatch.context() as patch, set_supervisor_comms(other):
            patch.setenv("AIRFLOW__PTJOB__INSTANCE", "staging")
            yield

    return execute


@pytest.mark.parametrize("theirs_too", [[], ["before"]], ids=["no such run", "a run of the same id"])
def test_another_airflow_on_the_ledger_leaves_the_runs_of_this_one_their_batches(
    held: StandInAirflow, url: str, staging: Callable[..., AbstractContextManager[None]], theirs_too: list[str]
) -> None:
    """What it knows of such a run says nothing; the run's own Airflow frees its batches when it has failed."""
    held.runs["before"] = ("running", ["running"])
    with staging(*theirs_too):
        theirs = names(claim(url))
        DataLedger(url).check(given())

    assert theirs == ["b2"]
    DataLedger(url).check(given("before"))
    held.runs["before"] = ("failed", ["failed"])

    assert names(claim(url)) == ["b1"]


def test_a_run_that_began_after_the_backup_keeps_its_batches_when_airflows_database_is_restored(
    airflow: StandInAirflow, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its job may still train, although neither run nor task is in the restored database."""
    airflow.happen("b1")
    claim(url, "earlier")
    airflow.runs["earlier"] = ("failed", ["failed"])
    backup = dict(airflow.runs), dict(airflow.variables)
    claim(url, "before")
    airflow.runs["before"] = ("running", ["running"])
    airflow.runs, airflow.variables = backup
    airflow.happen("b2")

    restored = names(claim(url))
    airflow.runs["now"] = ("success", ["success"])
    airflow.happen("b3")

    assert (restored, names(claim(url, "next"))) == (["b2"], ["b3"])
    DataLedger(url).check(given("before"))
    assert (
        "the run before of retrain is not in this Airflow, and nothing shows that it ever was"
        in capsys.readouterr().out
    )


def test_a_copy_of_this_airflow_frees_nothing(
    held: StandInAirflow, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has the same id and the same runs; there they have failed, because their workers are elsewhere."""
    held.runs["before"] = ("failed", ["failed"])
    monkeypatch.setattr(config, "foreign_origin", lambda: "the id was made elsewhere")

    assert names(claim(url)) == ["b2"]
    assert "the batches of other runs stay reserved: the id was made elsewhere" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("runs", "expected"), [({}, ["b2"]), ({"before": ("failed", ["failed"])}, ["b1", "b2"])], ids=["absent", "failed"]
)
def test_a_reservation_without_an_installation_is_never_gone(
    held: StandInAirflow, url: str, runs: dict[str, Any], expected: list[str]
) -> None:
    """An earlier version has written it. An Airflow that has the run says how it ended."""
    with LedgerStore(url, "default") as store, store._change() as connection:
        connection.exec_driver_sql("UPDATE ptjob_claims SET installation = NULL")
    held.runs = runs

    assert names(claim(url)) == expected


def test_the_claim_of_a_run_that_has_trained_is_settled_when_it_claims_again(held: StandInAirflow, url: str) -> None:
    """If the training fails when it runs again, its batches still count as trained on."""
    held.runs["before"] = ("running", ["success"])
    claim(url, "before")
    held.runs["before"] = ("failed", ["failed"])

    assert names(claim(url)) == ["b2"]


@pytest.mark.parametrize("when", ["events", "runs"])
def test_without_an_answer_from_airflow_nothing_is_claimed(held: StandInAirflow, url: str, when: str) -> None:
    """A retry may help; all batches stay available."""
    held.is_away = True

    with pytest.raises(AirflowException, match="Airflow did not say") as error:
        claim(url, inlets=[ARRIVED] if when == "events" else [])

    assert not isinstance(error.value, AirflowFailException)
    with LedgerStore(url, "default") as store:
        assert [each.run.run_id for each in store.open_reservations()] == ["before"]


@pytest.mark.parametrize("is_mapped", [False, True])
def test_a_training_task_that_does_not_wait_is_refused(url: str, *, is_mapped: bool) -> None:
    """It succeeds when its job is submitted, and the batches would count as trained whatever becomes of the job."""
    with DAG("retrain", schedule=None):
        task = ClaimBatchesOperator(task_id="claim", ledger=url)
        if is_mapped:
            PyTorchJobOperator.partial(task_id="train", wait_for_completion=False).expand(image=["digits"])
        else:
            PyTorchJobOperator(task_id="train", wait_for_completion=False, image="digits")

    with pytest.raises(AirflowFailException, match=r"training_task_id: 'train' is not allowed; .*waits for its job"):
        task.execute(context(StandInTaskInstance(dag_id="retrain", task_id="claim")))


def test_a_training_task_that_is_not_there_is_refused(url: str) -> None:
    """No training would ever succeed, and all batches would stay new."""
    with pytest.raises(
        AirflowFailException, match="training_task_id: 'trian' is not allowed; retrain has no such task"
    ):
        claim(url, training_task_id="trian")


@since(3, 2, "pages of asset events")
def test_events_that_triggered_other_runs_are_taken_too(airflow: StandInAirflow, url: str) -> None:
    """In the order of their time, for any page size; each event is read once, with a small overlap."""
    for number in range(130):
        airflow.happen(f"b{number:03}", at=NOON + timedelta(minutes=number))

    handover = claim(url)
    airflow.runs["now"] = ("running", ["running"])
    airflow.questions.clear()
    with pytest.raises(AirflowSkipException):
        claim(url, "next")

    assert names(handover) == [f"b{number:03}" for number in range(130)]
    (asked,) = [each for each in airflow.questions if isinstance(each, GetAssetEventByAsset)]
    assert asked.after == NOON + timedelta(minutes=129) - adapter._OVERLAP


def test_more_events_of_one_moment_than_a_page_has_are_read(airflow: StandInAirflow, url: str) -> None:
    """A page that does not get past one timestamp is made longer."""
    for number in range(170):
        airflow.happen(f"b{number:03}")

    assert len(names(claim(url))) == 170


def test_an_event_that_comes_late_is_not_missed(airflow: StandInAirflow, url: str) -> None:
    """Its time is before that of an event that was read earlier."""
    airflow.happen("b2", at=NOON)
    claim(url, "before")
    airflow.happen("b1", at=NOON - timedelta(minutes=5))
    airflow.runs["before"] = ("success", ["success"])

    assert names(claim(url)) == ["b1"]


def test_the_triggering_events_need_no_inlets(airflow: StandInAirflow, url: str) -> None:
    """Other events of their assets are read as well."""
    airflow.happen("b1")
    airflow.happen("b2")
    event: Any = SimpleNamespace(extra=airflow.events[1][1], asset=ARRIVED, source_aliases=[])
    triggering = TriggeringAssetEventsAccessor.build([event])

    assert names(claim(url, inlets=[], triggering=triggering)) == ["b1", "b2"]


def test_inlets_that_are_no_assets_are_ignored(airflow: StandInAirflow, url: str) -> None:
    """A task may have other inlets for lineage."""
    airflow.happen("b1")

    assert names(claim(url, inlets=["a table", ARRIVED])) == ["b1"]


def test_a_batch_that_cannot_be_kept_is_left_out_and_said(
    airflow: StandInAirflow, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It does not block other batches of the same event or of other events."""
    good = {"id": "b0@1", "uri": "s3://bucket/in/b0"}
    odd = [{"id": "b0"}, {**good, "id": "big@1", "bytes": 2**53}, {**good, "id": "odd\udcff"}, good]
    airflow.events = [(NOON, {"payload": {"batches": odd}}), (NOON, {"rows": 7}), (NOON, None)]
    airflow.happen("b1")

    assert names(claim(url)) == ["b0", "b1"]
    said = capsys.readouterr().out
    assert "a batch in an event of s3://bucket/in is left out: batch.uri: None is not allowed" in said
    assert "is left out: batch.bytes: 9007199254740992 is not allowed" in said
    assert "is left out: batch.id: 'odd" in said


def test_ten_thousand_batches_are_handed_over_by_a_manifest(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The XCom stays small; without a manifest the log says that one is needed."""
    with LedgerStore(url, "default") as store:
        store.record([Batch(id=f"b{number}@1", uri=f"s3://in/b{number}", bytes=1) for number in range(10_000)])
    attach("memory", fs=MemoryFileSystem())  # a scheme that no provider registers

    handover = claim(url, "before", manifest="memory://manifests/before.jsonl")
    again = claim(url, "before")

    assert (handover["paths"], handover["manifest"]) == (None, "memory://manifests/before.jsonl")
    assert len(ObjectStoragePath(handover["manifest"]).read_text().splitlines()) == 10_000
    assert again["manifest"] is None
    assert f"more than {LIST_LIMIT} batches: name a manifest" in capsys.readouterr().out


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_manifest_is_written_as_a_whole(airflow: StandInAirflow, url: str, tmp_path: Path, scheme: str) -> None:
    """Its folder is created, an existing manifest is replaced, and no temporary file is left."""
    airflow.happen("b1")

    for _ in range(2):
        claim(url, manifest=f"{scheme}{tmp_path / 'new' / 'data.jsonl'}")

    assert [path.name for path in (tmp_path / "new").iterdir()] == ["data.jsonl"]
    assert json.loads((tmp_path / "new" / "data.jsonl").read_text())["id"] == "b1@1"


def training(url: str, **more: Any) -> PyTorchJobOperator:
    fields = {"task_id": "train", "image": "digits", "deferrable": False, "wait_for_completion": False, **more}
    return PyTorchJobOperator(ledger=DataLedger(url), **fields)


def given(run_id: str = "now", map_index: int = -1) -> dict[str, Any]:
    return context(StandInTaskInstance(dag_id="retrain", task_id="train", run_id=run_id, map_index=map_index))


def test_a_job_runs_on_if_the_ledger_only_does_not_know_its_run(
    airflow: StandInAirflow, backend: ScriptedBackend, url: str, tmp_path: Path
) -> None:
    """The ledger was restored from a backup, or is another one now; the error says that the job was left."""
    airflow.happen("b1")
    claim(url)
    state = given()
    training(url).execute(state)

    with pytest.raises(AirflowFailException, match=r"has claimed no batches.* was left running\. Look at it"):
        training(f"sqlite:///{tmp_path / 'empty.db'}").execute(state)

    assert backend.deleted == []


def test_a_training_asks_before_it_submits(held: StandInAirflow, backend: ScriptedBackend, url: str) -> None:
    """No job is created for a run whose batches were given to another run; this is not retried."""
    claim(url)

    with pytest.raises(AirflowFailException, match="were given to run now"):
        training(url).execute(given("before"))
    assert backend.created == 0

    training(url).execute(given())
    assert backend.created == 1


def test_a_ledger_that_is_away_fails_no_finished_training(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It trained for hours, and Airflow knows that it succeeded."""
    task = training(f"sqlite:///{tmp_path}/none/ledger.db")

    assert task._tell(Mock(spec=JobExecution), {"phase": "Succeeded"}, {**given(), "outlet_events": {}}) == {
        "phase": "Succeeded"
    }
    assert "the training was not noted in the ledger" in capsys.readouterr().out


@pytest.mark.parametrize(("map_index", "reported"), [(-1, True), (1, False)])
def test_a_training_tells_the_ledger_that_it_succeeded(
    airflow: StandInAirflow, url: str, map_index: int, *, reported: bool
) -> None:
    """A mapped instance reports nothing: the other instances may fail."""
    airflow.happen("b1")
    claim(url)

    training(url)._tell(
        Mock(spec=JobExecution), {"phase": "Succeeded"}, {**given(map_index=map_index), "outlet_events": {}}
    )

    with LedgerStore(url, "default") as store:
        assert [each.reported for each in store.open_reservations()] == [reported]


@pytest.mark.parametrize(
    ("connection", "expected"),
    [
        ({"conn_type": "sqlite", "host": "/data/ledger.db"}, "sqlite:////data/ledger.db"),
        ("sqlite:////data/ledger.db", "sqlite:////data/ledger.db"),  # Airflow takes the path for the schema
        (
            {
                "conn_type": "postgres",
                "host": "db",
                "port": 5433,
                "login": "me",
                "password": "a/b@c",
                "schema": "ledger",
                "extra": {"sslmode": "require", "cursor": "x"},
            },
            "postgresql://me:a%2Fb%40c@db:5433/ledger?sslmode=require",
        ),
    ],
)
def test_a_connection_says_where_the_ledger_is(
    monkeypatch: pytest.MonkeyPatch, connection: dict[str, Any] | str, expected: str
) -> None:
    """Including the extras that PostgreSQL's driver understands."""
    monkeypatch.setenv("AIRFLOW_CONN_LEDGER", connection if isinstance(connection, str) else json.dumps(connection))

    assert adapter._address("ledger") == expected


def test_a_connection_to_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LEDGER", json.dumps({"conn_type": "mysql", "host": "db"}))

    with pytest.raises(InvalidSpec, match="the connection ledger: 'mysql' is not allowed; allowed: postgres, sqlite"):
        DataLedger("ledger").open()
