from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.local.objects import JobStore, is_expired, merged
from ptjob_provider.core.local.operator import with_condition
from rows import each_row

if TYPE_CHECKING:
    from pathlib import Path

ENDED = datetime(2026, 11, 20, 10, tzinfo=UTC)
FINISHED = with_condition({"completionTime": "2026-11-20T10:00:00Z"}, "Succeeded", "", now=ENDED)


@each_row(
    ("value", "change", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_changes_are_merged_as_rfc_7386_says(value: Any, change: Any, result: Any) -> None:
    """Its own examples."""
    assert merged(value, change) == result


@each_row(
    ("ttl", "status", "seconds", "gone"),
    [
        (60, FINISHED, 59, False),
        (60, FINISHED, 61, True),
        (0, FINISHED, 1, True),
        (None, FINISHED, 10**6, False),
        (60, {"completionTime": "2026-11-20T10:00:00Z"}, 61, False),
        (60, with_condition({}, "Failed", "", now=ENDED), 61, False),
    ],
)
def test_a_time_to_live_counts_from_the_end(
    ttl: int | None,
    status: dict[str, Any],
    seconds: int,
    gone: bool,  # noqa: FBT001 - a table
) -> None:
    """A job that has not ended, or has no time of its end, stays."""
    now = datetime.fromtimestamp(ENDED.timestamp() + seconds, UTC)

    assert is_expired({"spec": {"runPolicy": {"ttlSecondsAfterFinished": ttl}}}, status, now) is gone
    assert not is_expired({"spec": {}}, status, now)


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"pytorchReplicaSpecs": {}}},
        {"spec": None},
        {"metadata": {"name": "other"}},
        {"status": {"conditions": []}},
        {"spec": {"runPolicy": {"managedBy": "x"}}},
    ],
)
def test_only_annotations_labels_and_the_run_policy_can_be_changed(tmp_path: Path, change: dict[str, Any]) -> None:
    """What was started stays what it is."""
    ref = JobRef(kind="PyTorchJob", namespace="default", name="j", uid="1")

    with pytest.raises(InvalidSpec, match="patch"):
        JobStore(tmp_path).patch(ref, change)


@pytest.mark.parametrize(
    ("namespace", "name"),
    [("..", "j"), ("a/b", "j"), ("", "j"), ("x" * 64, "j"), ("ns", "../j"), ("ns", ""), ("ns", "J")],
)
def test_a_name_that_cannot_be_has_no_place(tmp_path: Path, namespace: str, name: str) -> None:
    """So that no name leads out of the root."""
    with pytest.raises(InvalidSpec):
        JobStore(tmp_path).files(namespace, name)
