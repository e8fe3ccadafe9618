"""Whose events are asked for: what selects an event is found again in it."""

from __future__ import annotations

from ptjob_provider.core.kubernetes.informer.scope import by_name, by_uid, created_at, selectors_of


def test_an_event_is_found_by_uid_and_by_kind_and_name() -> None:
    """So that one list of all events serves those who ask either way."""
    event = {"involvedObject": {"kind": "Job", "name": "digits-node-0", "uid": "u-1"}}

    assert selectors_of(event) == (by_uid("u-1"), by_name("Job", "digits-node-0"))
    assert selectors_of({}) == (by_uid(""), by_name("", ""))


def test_what_the_server_was_not_told_is_of_no_time() -> None:
    """It is never older than a job."""
    assert created_at({"metadata": {"creationTimestamp": "2026-11-20T10:00:00Z"}}) == "2026-11-20T10:00:00Z"
    assert created_at({"reason": "NotApplied"}) > "2026-11-20T10:00:00Z"
