from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from ptjob_provider.core.local.operator import has, instant, is_finished, with_condition

NOW = datetime(2026, 11, 20, 10, 0, 0, 5, tzinfo=UTC)
LATER = NOW + timedelta(seconds=5)


def types(status: dict) -> list[tuple[str, str]]:
    return [(one["type"], one["status"]) for one in status["conditions"]]


def through(*kinds: str) -> dict:
    status: dict = {}
    for kind in kinds:
        status = with_condition(status, kind, "", now=NOW)
    return status


def test_a_condition_has_the_operators_reason_and_both_times() -> None:
    """Unless it is given another reason."""
    (condition,) = with_condition({}, "Created", "made", now=NOW)["conditions"]

    assert condition == {
        "type": "Created",
        "status": "True",
        "reason": "PyTorchJobCreated",
        "message": "made",
        "lastUpdateTime": "2026-11-20T10:00:00.000005Z",
        "lastTransitionTime": "2026-11-20T10:00:00.000005Z",
    }
    assert with_condition({}, "Failed", "", now=NOW, reason="Lost")["conditions"][0]["reason"] == "Lost"


def test_running_and_restarting_take_turns() -> None:
    """One removes the other."""
    assert types(through("Created", "Running", "Restarting")) == [("Created", "True"), ("Restarting", "True")]
    assert types(through("Created", "Restarting", "Running")) == [("Created", "True"), ("Running", "True")]


def test_the_end_makes_running_false() -> None:
    """It stays in the list, before the end."""
    assert types(through("Running", "Succeeded")) == [("Running", "False"), ("Succeeded", "True")]
    assert types(through("Running", "Failed")) == [("Running", "False"), ("Failed", "True")]


def test_restarting_survives_success() -> None:
    """As in the operator, whose readers must look at Succeeded first."""
    assert types(through("Restarting", "Succeeded")) == [("Restarting", "True"), ("Succeeded", "True")]


def test_after_failed_nothing_changes() -> None:
    """It is the last word."""
    failed = through("Failed")

    assert with_condition(failed, "Succeeded", "", now=LATER) == failed


def test_success_can_be_followed_by_failure() -> None:
    """It is not the last word there."""
    assert types(through("Succeeded", "Failed")) == [("Succeeded", "True"), ("Failed", "True")]


def test_a_condition_that_says_the_same_is_left_alone() -> None:
    """Its times tell when it began."""
    status = through("Running")

    assert with_condition(status, "Running", "other words", now=LATER) == status


def test_a_new_reason_is_an_update_but_no_transition() -> None:
    """Only a change of True and False is one."""
    status = with_condition(through("Suspended"), "Suspended", "", now=LATER, reason="Other")

    (condition,) = status["conditions"]
    assert (condition["lastUpdateTime"], condition["lastTransitionTime"]) == (instant(LATER), instant(NOW))


def test_a_change_of_truth_is_a_transition() -> None:
    """And moves the condition to the end."""
    status = with_condition(through("Suspended", "Created"), "Suspended", "", now=LATER, truth="False")

    assert types(status) == [("Created", "True"), ("Suspended", "False")]
    assert status["conditions"][1]["lastTransitionTime"] == instant(LATER)


def test_a_false_condition_does_not_hold() -> None:
    """Type and truth both count."""
    status = through("Running", "Succeeded")

    assert not has(status, "Running")
    assert is_finished(status)
    assert is_finished(through("Failed"))
    assert not is_finished({})


def test_an_instant_is_written_in_utc() -> None:
    """Whatever zone it came in."""
    assert instant(NOW.astimezone(timezone(timedelta(hours=2)))) == "2026-11-20T10:00:00.000005Z"
