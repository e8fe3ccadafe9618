"""Tests of the ledger's decisions without a database: new batches for a training and their hand-over."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ptjob_provider.retraining.reservations import (
    LIST_LIMIT,
    Batch,
    Handover,
    ReservationState,
    batches_of,
    manifest_lines,
    may_reserve_more,
    reservation_state,
)
from rows import each_row

FIELDS = {"id": "b1@0f", "uri": "s3://in/b1", "files": 3, "bytes": 12, "modified": "2026-11-22T00:00:00Z"}
STATES = [
    *("none", "scheduled", "queued", "running", "success", "restarting", "failed", "up_for_retry", "up_for_reschedule"),
    *("upstream_failed", "skipped", "deferred", "removed", "awaiting_input"),
]


def batch(number: int, *, version: str = "a", size: int | None = 10) -> Batch:
    """Return a batch by number; a new version has the same address."""
    return Batch(id=f"b{number}@{version}", uri=f"s3://in/b{number}", files=1, bytes=size)


def test_an_event_of_a_trigger_tells_of_its_batches() -> None:
    """Airflow wraps the payload of a trigger."""
    extra = {"from_trigger": True, "payload": {"source": "s3://in", "batches": [FIELDS, {"id": "b2", "uri": "s3://2"}]}}

    assert batches_of(extra) == ([Batch(**FIELDS), Batch(id="b2", uri="s3://2")], [])


@each_row("extra", [None, {}, {"payload": "done"}, {"payload": {"rows": 3}}, {"batches": "b1"}])
def test_an_event_may_be_about_something_else(extra: Any) -> None:
    """Other writers update the asset, too."""
    assert batches_of(extra) == ([], [])


@each_row(
    ("change", "named"),
    [
        ({"id": ""}, "batch.id"),
        ({"id": None}, "batch.id"),
        ({"uri": 7}, "batch.uri"),
        ({"uri": "u" * 2001}, "batch.uri"),
        ({"files": -1}, "batch.files"),
        ({"bytes": "12"}, "batch.bytes"),
        ({"bytes": True}, "batch.bytes"),
        ({"bytes": 2**63}, r"batch.bytes: 9223372036854775808 is not allowed; allowed: a whole number from 0 to 2\^53"),
        ({"modified": "m" * 41}, "batch.modified"),
        ({"modified": "2026\0"}, r"batch.modified: '2026\\x00' is not allowed"),
        ({"uri": "s3://in/\udcff"}, r"batch.uri: 's3://in/\\udcff' is not allowed"),
    ],
)
def test_an_invalid_batch_is_named_by_its_field_and_the_others_are_taken(change: dict[str, Any], named: str) -> None:
    """A database cannot store an invalid batch; the valid ones of the event are taken."""
    found, wrong = batches_of({"batches": [{**FIELDS, **change}, FIELDS]})

    assert found == [Batch(**FIELDS)]
    assert len(wrong) == 1
    assert re.match(named, wrong[0])


def test_a_batch_that_is_no_map_is_reported() -> None:
    assert batches_of({"batches": ["b1"]}) == ([], ["batch: 'b1' is not allowed; allowed: a map with id and uri"])


def test_sums_of_sizes_stay_numbers_that_every_reader_keeps() -> None:
    """The result is encoded with 64-bit integers."""
    huge = [Batch(id=f"b{number}", uri=f"s3://in/{number}", bytes=2**53 - 1) for number in range(3)]

    listed = Handover(earlier=[], new=huge).to_dict()

    assert (listed["bytes"], listed["new_bytes"]) == (2**53 - 1, 2**53 - 1)


@each_row(
    ("training", "is_going", "reported", "expected"),
    [
        (["success"], True, False, ReservationState.HAD),  # an evaluation may still run
        (["success"], False, False, ReservationState.HAD),
        (["success", "success"], False, False, ReservationState.HAD),
        (["success", "failed"], False, False, ReservationState.FREE),  # a mapped training that failed partly
        (["success", "running"], True, False, ReservationState.TAKEN),
        (["failed"], True, True, ReservationState.TAKEN),
        (["none"], True, False, ReservationState.TAKEN),
        (["none"], False, False, ReservationState.FREE),
        (["upstream_failed"], False, False, ReservationState.FREE),
        (["skipped"], False, False, ReservationState.FREE),
        ([], False, False, ReservationState.FREE),  # the task is no longer in the DAG
        ([], False, True, ReservationState.HAD),  # `airflow db clean` keeps a DAG's last run without its tasks
        (["failed"], False, True, ReservationState.FREE),  # success was reported here, but not to Airflow
        (["deferred"], False, False, ReservationState.TAKEN),  # the run was marked, and its job is stopping
        (["up_for_retry"], False, False, ReservationState.TAKEN),
        ([], None, True, ReservationState.HAD),  # deleted from Airflow
        (["success"], None, True, ReservationState.HAD),  # deleted between the two questions
        ([], None, False, ReservationState.FREE),
    ],
)
def test_the_states_of_a_run_decide_its_reservation_state(
    *, training: list[str], is_going: bool | None, reported: bool, expected: ReservationState
) -> None:
    assert reservation_state(training, is_going=is_going, reported=reported, was_here=True) is expected


@each_row(("reported", "expected"), [(True, ReservationState.HAD), (False, ReservationState.TAKEN)])
def test_a_run_that_airflow_never_had_is_not_gone(*, reported: bool, expected: ReservationState) -> None:
    """It may train elsewhere; only its own training can say that it has succeeded."""
    assert reservation_state([], is_going=None, reported=reported, was_here=False) is expected


@given(training=st.lists(st.sampled_from(STATES), max_size=4), is_going=st.booleans(), reported=st.booleans())
def test_batches_are_not_free_while_a_training_may_use_them(
    *, training: list[str], is_going: bool, reported: bool
) -> None:
    state = reservation_state(training, is_going=is_going, reported=reported, was_here=True)

    if state is ReservationState.FREE:
        assert not is_going
        assert not {"running", "deferred", "queued", "scheduled", "restarting", "up_for_retry"} & set(training)
    assert (state is ReservationState.HAD) == (set(training) == {"success"} or (reported and not training))


@each_row("state", STATES)
def test_a_run_gets_more_only_before_its_training(state: str) -> None:
    """A batch that is added during the training would count as used."""
    expected = state in {"none", "failed", "upstream_failed", "skipped", "removed"}

    assert may_reserve_more([state]) is expected
    assert may_reserve_more(["none", state]) is expected
    assert may_reserve_more([])


def test_a_handover_lists_the_new_and_all_batches() -> None:
    listed = Handover(earlier=[batch(1), batch(2)], new=[batch(3), batch(4, size=None)]).to_dict()

    assert json.loads(json.dumps(listed)) == listed
    assert listed["new"] == ["s3://in/b3", "s3://in/b4"]
    assert listed["new_ids"] == ["b3@a", "b4@a"]
    assert listed["all"] == ["s3://in/b1", "s3://in/b2", "s3://in/b3", "s3://in/b4"]
    assert listed["paths"] == "s3://in/b1,s3://in/b2,s3://in/b3,s3://in/b4"
    assert (listed["batches"], listed["bytes"], listed["new_batches"], listed["new_bytes"]) == (4, 30, 2, 10)


def test_the_version_is_that_of_the_data() -> None:
    """It depends on the data only, not on the split into earlier and new batches."""
    one = Handover(earlier=[batch(1)], new=[batch(2)])

    assert one.version == Handover(earlier=[], new=[batch(1), batch(2)]).version
    assert one.version != Handover(earlier=[batch(1)], new=[batch(2, version="b")]).version
    assert one.version.startswith("2-")


def test_a_batch_that_was_written_anew_is_listed_once() -> None:
    """It is listed at its last position, and both ids count as used."""
    handover = Handover(earlier=[batch(1), batch(2)], new=[batch(1, version="b"), batch(1, version="c")])

    listed = handover.to_dict()

    assert listed["all"] == ["s3://in/b2", "s3://in/b1"]
    assert listed["new"] == ["s3://in/b1"]
    assert listed["new_ids"] == ["b1@b", "b1@c"]
    assert listed["new_batches"] == 1


def test_many_batches_are_counted_and_not_listed() -> None:
    """The value stays small; short lists are kept."""
    earlier = [batch(number) for number in range(LIST_LIMIT)]

    at_limit = Handover(earlier=earlier[:-1], new=[batch(LIST_LIMIT)]).to_dict()
    above = Handover(earlier=earlier, new=[batch(LIST_LIMIT)]).to_dict()
    many_new = Handover(earlier=[], new=[*earlier, batch(LIST_LIMIT)]).to_dict()

    assert len(at_limit["all"]) == LIST_LIMIT
    assert (above["all"], above["paths"], above["new"]) == (None, None, [f"s3://in/b{LIST_LIMIT}"])
    assert above["batches"] == LIST_LIMIT + 1
    assert (many_new["new"], many_new["new_ids"]) == (None, None)
    assert len(json.dumps(many_new)) < 1000


def test_an_address_with_a_comma_is_not_joined() -> None:
    """It would be read as two addresses."""
    listed = Handover(earlier=[], new=[Batch(id="b", uri="s3://in/a,b")]).to_dict()

    assert (listed["paths"], listed["all"]) == (None, ["s3://in/a,b"])


def test_the_manifest_has_a_line_for_each_batch() -> None:
    handover = Handover(earlier=[batch(1), batch(2)], new=[batch(1, version="b")])

    lines = [json.loads(line) for line in manifest_lines(handover)]

    assert [(line["id"], line["new"]) for line in lines] == [("b2@a", False), ("b1@b", True)]
    assert lines[0] == {**batch(2).to_dict(), "new": False}
