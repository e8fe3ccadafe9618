"""Tests of the return value of rank 0's function: from the termination message to the record of the job's pods."""

from __future__ import annotations

from pods import container, ended, look, pod
from ptjob_provider.core.history import PodHistory
from ptjob_provider.core.history.codec import from_text, to_text

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
