"""Tests of the ledger's store: which batches a run reserves, which it cannot get, and when they become new again."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

from ledger.reserving import EarlierVersionStandIn
from ptjob_provider.core.errors import InvalidSpec, LedgerUnavailable, ReservationLost
from ptjob_provider.core.identity import Instance
from ptjob_provider.retraining.ledger import CLAIMS, LedgerStore, Reserved, Reserver
from ptjob_provider.retraining.reservations import Batch, ReservationState

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

HERE = Path(__file__).parent


def batch(name: str) -> Batch:
    return Batch(id=f"{name}@1", uri=f"s3://in/{name}", files=2, bytes=10)


HERE_INSTALLED, ELSEWHERE = Instance("tests"), Instance("staging")


def run(run_id: str, dag_id: str = "retrain", installation: Instance = HERE_INSTALLED) -> Reserver:
    return Reserver(installation=installation, dag_id=dag_id, run_id=run_id, training_task_id="train")


def reserve(
    store: LedgerStore,
    run_id: str,
    state: ReservationState = ReservationState.TAKEN,
    *,
    more: bool = True,
    installation: Instance = HERE_INSTALLED,
) -> Reserved:
    """Reserve batches for a run, deciding that all other runs' reservations are in this state."""
    decisions = [(each, state) for each in store.open_reservations() if each.run.run_id != run_id]
    return store.reserve(run(run_id, installation=installation), decisions, may_reserve_more=more)


@pytest.fixture
def held(store: LedgerStore) -> LedgerStore:
    """Return a ledger whose batch b1 is reserved by the run `first`."""
    store.record([batch("b1")])
    reserve(store, "first")
    return store


def new(reserved: Reserved) -> list[str]:
    """Return the ids that are new."""
    return [each.id for each in reserved.handover.new]


def earlier(reserved: Reserved) -> list[str]:
    """Return the ids that earlier trainings used."""
    return [each.id for each in reserved.handover.earlier]


def test_a_run_claims_what_is_there_in_the_order_of_its_arrival(store: LedgerStore) -> None:
    batches = [batch("b2"), batch("b1"), Batch(id="b3@1", uri="pvc://data/b3", modified="2026-11-22T00:00:00Z")]
    store.record(batches[:2])
    store.record(batches[2:])

    reserved = reserve(store, "first")

    assert list(reserved.handover.new) == batches
    assert earlier(reserved) == []


def test_a_batch_is_known_once(store: LedgerStore) -> None:
    """Even if it is announced several times, in one event or in several."""
    assert store.record([batch("b1"), batch("b1"), batch("b2")]) == 2
    assert store.record([batch("b2"), batch("b3")]) == 1
    assert store.record([]) == 0

    assert new(reserve(store, "first")) == ["b1@1", "b2@1", "b3@1"]


def test_a_batch_with_the_largest_allowed_values_can_be_stored(store: LedgerStore) -> None:
    """The longest texts and the largest numbers that a batch may have."""
    fields = {"id": "💾" * 500, "uri": "é" * 2000, "files": 2**53 - 1, "bytes": 2**53 - 1, "modified": "m" * 40}
    store.record([Batch.from_dict(fields)])

    assert [each.to_dict() for each in reserve(store, "first").handover.new] == [fields]


def test_batches_reserved_by_one_run_are_not_given_to_another(held: LedgerStore) -> None:
    """The first run may still train; batches that arrive meanwhile go to the second run, all together."""
    held.record([batch("b2")])
    held.record([batch("b3")])

    assert new(reserve(held, "second")) == ["b2@1", "b3@1"]
    assert new(reserve(held, "third")) == []


def test_batches_of_a_successful_training_are_the_earlier_ones_of_later_runs(held: LedgerStore) -> None:
    held.record([batch("b2")])
    second = reserve(held, "second", ReservationState.HAD)
    third = reserve(held, "third", ReservationState.HAD)

    assert (earlier(second), new(second)) == (["b1@1"], ["b2@1"])
    assert (earlier(third), new(third)) == (["b1@1", "b2@1"], [])


def test_the_batches_of_a_run_that_failed_are_new_again(held: LedgerStore) -> None:
    """They keep their order of arrival, before later batches."""
    held.record([batch("b2")])

    second = reserve(held, "second", ReservationState.FREE)

    assert (earlier(second), new(second)) == ([], ["b1@1", "b2@1"])
    assert [(each.run.run_id, each.batches, state) for each, state in second.settled] == [
        ("first", 1, ReservationState.FREE)
    ]


def test_a_run_that_asks_again_gets_its_own_batches(held: LedgerStore) -> None:
    """On a retry of its claim task; it also gets new batches, unless its training has begun."""
    held.record([batch("b2")])

    assert new(reserve(held, "first", more=False)) == ["b1@1"]
    assert new(reserve(held, "first")) == ["b1@1", "b2@1"]
    assert new(reserve(held, "second")) == []


def test_a_run_that_has_trained_and_is_cleared_gets_its_own_again(held: LedgerStore) -> None:
    """Its batches stay its own; newly reserved ones become new again if this training fails."""
    reserve(held, "second", ReservationState.HAD)
    held.record([batch("b2")])

    again = reserve(held, "first")
    after = reserve(held, "second", ReservationState.FREE)

    assert (earlier(again), new(again)) == ([], ["b1@1", "b2@1"])
    assert (earlier(after), new(after)) == (["b1@1"], ["b2@1"])


def test_a_run_whose_batches_went_to_another_gets_what_is_new_now(held: LedgerStore) -> None:
    reserve(held, "second", ReservationState.FREE)

    assert new(reserve(held, "first")) == []
    held.record([batch("b2")])
    assert new(reserve(held, "first")) == ["b2@1"]
    held.check(run("first"))


def test_a_training_may_only_begin_with_batches_of_its_own(held: LedgerStore) -> None:
    """The training was cleared alone after its run failed: the error names the run that has its batches, and a fix."""
    held.check(run("first"))
    reserve(held, "second", ReservationState.FREE)

    with pytest.raises(ReservationLost, match=r"given to run second after it had failed.*Clear its claim as well"):
        held.check(run("first"))
    held.check(run("second"))
    with pytest.raises(ReservationLost, match="run third of retrain has claimed no batches in the ledger"):
        held.check(run("third"))
    with pytest.raises(ReservationLost, match="of another has claimed no batches"):
        held.check(run("second", dag_id="another"))


def test_runs_of_two_installations_that_have_the_same_ids_hold_batches_of_their_own(held: LedgerStore) -> None:
    """Two Airflows with the same DAG may start a run for the same time."""
    held.record([batch("b2")])

    theirs = reserve(held, "first", installation=ELSEWHERE)

    assert (earlier(theirs), new(theirs)) == ([], ["b2@1"])
    assert new(reserve(held, "first")) == ["b1@1"]
    assert [each.run for each in held.open_reservations()] == [run("first"), run("first", installation=ELSEWHERE)]


def test_a_run_is_the_same_by_each_id_of_its_installation(store: LedgerStore) -> None:
    """Two workers that create the installation's id at the same moment leave it with both."""
    store.record([batch("b1")])
    reserve(store, "first", installation=Instance("tests", frozenset({"other"})))

    again = run("first", installation=Instance("a", frozenset({"tests"})))

    store.check(again)
    assert store.handover(again).new


@pytest.fixture
def earlier_store(url: str, name: str) -> Iterator[EarlierVersionStandIn]:
    with EarlierVersionStandIn(url, name) as store:
        store.record([batch("b1")])
        store.reserve_new("first")
        yield store


def test_a_table_of_an_earlier_version_gets_its_column_at_first_use(
    earlier_store: EarlierVersionStandIn, store: LedgerStore
) -> None:
    """Both versions go on; a reservation without an installation is that of the run that has its ids."""
    assert [each.run for each in store.open_reservations()] == [run("first", installation=Instance(""))]
    assert list(store.handover(run("first")).new) == [batch("b1")]
    store.check(run("first"))
    store.record([batch("b2")])
    assert earlier_store.reserve_new("second") == ["b2@1"]

    assert [each.run for each in store.open_reservations()] == [run("first"), run("second", installation=Instance(""))]


@pytest.mark.parametrize("are_there_tables", [True, False], ids=["with tables", "without tables"])
def test_processes_of_two_versions_bring_a_table_up_to_date_at_once(
    url: str, name: str, *, are_there_tables: bool
) -> None:
    """Eight processes, every second of the earlier version, on three ledgers: none fails, each batch goes to one.

    All of a ledger announce the same batches, in different orders.
    """
    if are_there_tables:
        with EarlierVersionStandIn(url, name) as store:
            store.reserve_new("earlier")
    everything = [f"b{number:03}" for number in range(90)]
    moment = time.time() + 3
    processes = []
    for n in range(8):
        known = json.dumps(everything[30 * n :: -1] + everything[:: 1 if n < 3 else -1])
        run_id = f"{'earlier' if n % 2 else 'run'}-{n}"
        command = [sys.executable, HERE / "reserving.py", url, f"{name}-{n % 3}", run_id, str(moment), known]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    answers = [process.communicate(timeout=120)[0] for process in processes]

    assert [process.returncode for process in processes] == [0] * 8
    assert sorted(each for answer in answers for each in json.loads(answer)) == sorted(everything * 3)


def test_a_process_that_adds_the_column_waits_for_the_others(
    earlier_store: EarlierVersionStandIn, store: LedgerStore, url: str, name: str
) -> None:
    """For one of the earlier version that changes the same ledger, then for one that adds it for another ledger."""
    with ThreadPoolExecutor() as pool, LedgerStore(url, f"{name}-other") as other:
        with earlier_store._change() as connection:
            adding = waiting(pool.submit(store.open_reservations))
            connection.scalar(sa.select(sa.func.count(CLAIMS.c.id)))
        assert adding.exception(60) is None
        with earlier_store._change() as connection:
            connection.exec_driver_sql("ALTER TABLE ptjob_claims DROP COLUMN installation")
        with other._change():
            adding = waiting(pool.submit(store.open_reservations))
        assert adding.exception(60) is None


def waiting(acting: Future[Any]) -> Future[Any]:
    """Return the call once it has had the time to come to its lock."""
    with pytest.raises(TimeoutError):
        acting.result(1)
    return acting


def test_a_training_that_begins_while_its_fate_is_decided_keeps_its_batches(held: LedgerStore) -> None:
    """The decision is based on Airflow's state before the training was cleared, so it no longer applies."""
    stale = [(each, ReservationState.FREE) for each in held.open_reservations()]
    held.check(run("first"))

    second = held.reserve(run("second"), stale, may_reserve_more=True)

    assert new(second) == []
    assert [state for _, state in second.settled] == [ReservationState.TAKEN]
    held.check(run("first"))
    assert [each.run.run_id for each in held.open_reservations()] == ["first"]


def test_a_claim_that_is_made_again_while_its_fate_is_decided_holds(held: LedgerStore) -> None:
    """The same for a run that was cleared as a whole."""
    stale = [(each, ReservationState.FREE) for each in held.open_reservations()]
    reserve(held, "first")

    assert new(held.reserve(run("second"), stale, may_reserve_more=True)) == []


def test_a_success_is_reported_until_the_training_begins_again(held: LedgerStore) -> None:
    """Used when Airflow has deleted the run; a run without reserved batches is not recorded."""
    held.report(run("first"))
    held.report(run("second"))
    reported = [each.reported for each in held.open_reservations()]
    held.check(run("first"))

    assert reported == [True]
    assert [each.reported for each in held.open_reservations()] == [False]


def test_ledgers_of_one_database_are_separate(url: str, name: str) -> None:
    with LedgerStore(url, f"{name}-a") as one, LedgerStore(url, f"{name}-b") as other:
        one.record([batch("b1")], source="drop", until="1")
        other.record([batch("b1")])

        assert new(reserve(one, "first")) == ["b1@1"]
        assert new(reserve(other, "first")) == ["b1@1"]
        assert (one.read_until("drop"), other.read_until("drop")) == ("1", None)


def test_the_position_up_to_which_events_were_read_never_moves_back(store: LedgerStore) -> None:
    """A page that is read again, or by two readers, does not move the position back."""
    store.record([], source="drop", until="2026-11-22T02")
    store.record([], source="drop", until="2026-11-22T01")
    store.record([], source="other", until="2026-11-22T00")

    assert store.read_until("drop") == "2026-11-22T02"
    assert store.read_until("other") == "2026-11-22T00"


def test_a_change_that_fails_changes_nothing(store: LedgerStore) -> None:
    """The second row cannot be written, so neither the first row nor the read position is stored."""
    too_long = Batch(id="b2", uri="s3://in/b2", modified="m" * 50, bytes=2**80)
    with pytest.raises((LedgerUnavailable, OverflowError)):
        store.record([batch("b1"), too_long], source="drop", until="1")

    assert new(reserve(store, "first")) == []
    assert store.read_until("drop") is None


def test_batches_of_a_failed_run_go_to_the_first_run_that_reserves_them(store: LedgerStore) -> None:
    """Two runs see that it failed; the decision of the second run no longer applies."""
    store.record([batch("b1")])
    reserve(store, "failed")
    over = [(each, ReservationState.FREE) for each in store.open_reservations()]

    assert new(store.reserve(run("first"), over, may_reserve_more=True)) == ["b1@1"]
    assert new(store.reserve(run("second"), over, may_reserve_more=True)) == []


def test_a_database_that_does_not_answer_is_no_fault_of_the_run(tmp_path: Path) -> None:
    """The error names the database without its password, and is retryable."""
    refused = "postgresql+psycopg2://me:secret-word@127.0.0.1:1/ledger"

    for url, where in ((refused, "me:\\*\\*\\*@127.0.0.1:1"), (f"sqlite:///{tmp_path}/none/ledger.db", "ledger.db")):
        with pytest.raises(LedgerUnavailable, match=where) as error, LedgerStore(url, "digits") as store:
            store.record([batch("b1")])
        assert error.value.retryable
        assert "secret-word" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("no address", "not a database address"),
        ("sqlite:///", "absolute path of a file"),  # SQLite would keep it in memory, empty in every task
        ("sqlite:///ledger.db", "absolute path of a file"),
        ("mysql://me:secret-word@host/db", "allowed: postgresql, sqlite"),
        ("postgresql+pg8000://me:secret-word@host/db", "driver of postgresql\\+pg8000 is not installed"),
        ("postgresql+unheard://me:secret-word@host/db", "driver of postgresql\\+unheard is not installed"),
    ],
)
def test_an_address_that_can_hold_no_ledger_is_refused(url: str, said: str) -> None:
    """Before any connection is made; the error does not contain the password."""
    with pytest.raises(InvalidSpec, match=said) as error:
        LedgerStore(url, "digits")

    assert "secret-word" not in str(error.value)


def test_an_address_needs_no_driver(database: str, name: str) -> None:
    with LedgerStore(database.replace("+psycopg2", ""), name) as store:
        assert store.record([batch("b1")]) == 1


def test_changes_of_a_ledger_follow_each_other(url: str, name: str) -> None:
    """A reservation waits for the current change, and then sees its result."""
    reservations: list[Reserved] = []
    with LedgerStore(url, name) as store, LedgerStore(url, name) as other:
        store.record([batch("b1")])
        waiting = threading.Thread(target=lambda: reservations.append(reserve(other, "second")))
        with store._change() as connection:
            waiting.start()
            waiting.join(1)
            was_waiting = waiting.is_alive()
            store._take(connection, run("first"))
        waiting.join(60)

    assert was_waiting
    assert [new(each) for each in reservations] == [[]]


def test_a_claimant_that_stands_still_does_not_hold_the_others_up(database: str, name: str) -> None:
    """The server ends the transaction of a frozen process; SQLite cannot."""
    with LedgerStore(database, name) as store:
        store.record([batch("b1")])
        with store._change() as connection:
            limit = connection.scalar(sa.text("SHOW idle_in_transaction_session_timeout"))

    assert limit == "1min"
