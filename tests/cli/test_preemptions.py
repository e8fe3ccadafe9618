"""Tests of `ptjob run` whose job the platform ends."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from preempting import PreemptingStandIn
from ptjob_provider.core.run import preemptions
from rows import each_row

if TYPE_CHECKING:
    from collections.abc import Callable

RUN = ("run", "--name", "digits", "--image", "digits:1", "-o", "json")


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preemptions, "_FIRST_PAUSE", 0.0)


def test_a_run_survives_a_preemption_under_its_name(ptjob: Callable[..., Any]) -> None:
    """The job of the first attempt gives its name to the second; the result says what was lost."""
    backend = PreemptingStandIn("evicted")

    ran = ptjob(backend, *RUN, "--max-preemptions", "1", "--", "train")

    assert ran.exit_code == 0, ran.output
    result = json.loads(ran.stdout)
    assert (result["job"]["name"], result["attempt"]) == ("digits", 2)
    assert result["preemptions"] == [{"node": "node-1", "cause": "evicted", "seconds_lost": 60.0}]
    assert "digits was ended by the platform: master-0 (rank 0) was evicted" in ran.stderr


@each_row(("flags", "code", "created"), [((), 1, 3), (("--no-progress-limit", "0"), 75, 4)])
def test_a_run_whose_attempts_reach_no_new_step_ends(
    ptjob: Callable[..., Any], flags: tuple[str, ...], code: int, created: int
) -> None:
    """Exit code 1 says that another run would not help either."""
    backend = PreemptingStandIn(*["evicted"] * 4, steps=[range(1, 9)] * 4)

    ran = ptjob(backend, *RUN, "--max-preemptions", "3", *flags, "--", "train")

    assert (ran.exit_code, backend.created) == (code, created), ran.output
    assert ("no_progress_limit=2 allows no further attempt" in ran.stderr) is (code == 1)


@each_row(
    ("flags", "created"),
    [
        ((), 1),
        (("--checkpoints", "pvc://models/c"), 4),
        (("--checkpoints", "pvc://models/c", "--max-preemptions", "0"), 1),
    ],
)
def test_a_run_goes_on_by_itself_only_with_checkpoints(
    ptjob: Callable[..., Any], flags: tuple[str, ...], created: int
) -> None:
    backend = PreemptingStandIn(*["evicted"] * 4)

    ran = ptjob(backend, *RUN, *flags, "--", "train")

    assert (ran.exit_code, backend.created) == (75, created), ran.output
