"""Tests of the return value of rank 0's function: from the termination message to the record of the job's pods."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from core.odd_values import nested
from pods import container, ended, look, pod
from ptjob_provider.core.history import PodHistory
from ptjob_provider.core.history.codec import from_text, to_text
from ptjob_provider.core.in_pod.run_function import KEY, report

if TYPE_CHECKING:
    from pathlib import Path

RETURNED = '{"ptjob_return_value":{"loss":0.5}}'


def test_a_return_value_is_recorded_and_is_no_message() -> None:
    """It stays after the pod is gone, in another process as well."""
    record = look(PodHistory(), pod(container(ended(0, message=RETURNED)), phase="Succeeded"))

    kept = look(from_text(to_text(record)))

    assert (kept.returned, [end.message for end in kept.terminations]) == ('{"loss": 0.5}', [""])


def test_another_replica_that_ends_does_not_take_it_away() -> None:
    """Only rank 0 returns a value."""
    record = look(PodHistory(), pod(container(ended(0, message=RETURNED)), phase="Succeeded"))

    after = look(record, pod(container(ended(0)), phase="Succeeded", uid="u2"))

    assert after.returned == '{"loss": 0.5}'


def test_the_log_of_a_pod_that_failed_after_rank_0_returned_is_read() -> None:
    """Another rank of the pod failed: its exception is in the log, not in the message."""
    record = look(PodHistory(), pod(container(ended(1, message=RETURNED)), phase="Failed"))

    assert [end.message for end in record.silent_ends()] == [""]


def test_a_message_of_brackets_is_no_return_value() -> None:
    """Python's parser ends with RecursionError there; the job is followed all the same."""
    try:
        record = look(PodHistory(), pod(container(ended(1, message=f'{{"{KEY}":' + "[" * 4000)), phase="Failed"))
    except RecursionError:
        pytest.fail("the job cannot be followed")

    assert record.returned == ""


def test_a_return_value_with_unstorable_parts_arrives_with_them_replaced(tmp_path: Path) -> None:
    """A training that has succeeded does not fail for it; what cannot be stored is replaced, and the log says so."""
    message = tmp_path / "message"
    try:
        report("fit", {"half": "\ud800", "nul": "a\0", "seed": 2**64, "ü": "\U0001f600"}, str(message))
    except ValueError:
        pytest.fail("the training fails")

    record = look(PodHistory(), pod(container(ended(0, message=message.read_text())), phase="Succeeded"))

    assert json.loads(record.returned) == {"half": "\ufffd", "nul": "a\ufffd", "seed": str(2**64), "ü": "\U0001f600"}
    (notice,) = record.notices
    assert "return_value.half (NUL or half of a surrogate pair)" in notice
    assert "return_value.seed (an integer beyond 64 bits)" in notice


def test_a_handwritten_message_may_have_what_only_python_reads() -> None:
    record = look(PodHistory(), pod(container(ended(0, message=f'{{"{KEY}": [NaN, -Infinity, 1e999]}}'))))

    assert json.loads(record.returned) == ["NaN", "-Infinity", "Infinity"]


def test_a_return_value_of_too_many_levels_is_an_error_that_names_the_function(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="fit returned maximum recursion depth exceeded"):
        report("fit", nested(2000), str(tmp_path / "message"))
