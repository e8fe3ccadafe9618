"""Tests of the demonstration's output: which lines of a task's log it prints."""

from __future__ import annotations

from demo.story import told_lines


def test_lines_of_operator_and_trigger_are_shown_one_by_one() -> None:
    record = {
        "event": "epoch 1\nepoch 2",
        "logger": "ptjob_provider.airflow.triggers.PyTorchJobTrigger",
        "level": "info",
    }

    assert told_lines(record) == ["epoch 1", "epoch 2"]


def test_airflows_housekeeping_is_left_out_and_its_warnings_are_not() -> None:
    assert told_lines({"event": "Pushing xcom", "logger": "task", "level": "info"}) == []
    assert told_lines({"event": "::group::Log message source details"}) == []
    assert told_lines({"event": "Server indicated the task shouldn't be running", "level": "error"}) != []


def test_an_errors_text_is_shown_with_its_record() -> None:
    """Airflow stores the exception in a separate field; its text is the diagnosis."""
    detail = [{"exc_type": "AirflowFailException", "exc_value": "default/d failed: …\nLast lines of d-worker-0:"}]

    lines = told_lines({"event": "Task failed with exception", "level": "error", "error_detail": detail})

    assert lines == ["Task failed with exception", "default/d failed: …", "Last lines of d-worker-0:"]
