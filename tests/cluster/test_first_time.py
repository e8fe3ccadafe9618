"""What somebody sees on a machine that has no cluster yet, or can have none."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cluster import binaries
from cluster.binaries import PAUSE, Binaries
from cluster.boot import not_root
from cluster.fixtures import REQUIRED, skip_because
from cluster.shell import reminding, spoken, wait_until

TESTS = Path(__file__).parent
WITHOUT_GO = {**os.environ, "PATH": "/usr/bin:/bin"}
UNMET = not_root() or "Go 1.26 is needed on PATH"
"""What is said first where Go is missing."""


def run_one_test(environment: dict[str, str]) -> str:
    """Run a test that needs the cluster, as a person would, and return the report."""
    command = [sys.executable, "-m", "pytest", "-q", str(TESTS / "test_images.py"), "-k", "not_imported_again"]
    done = subprocess.run(
        command, env=environment, cwd=TESTS.parent.parent, capture_output=True, text=True, timeout=280, check=False
    )
    return done.stdout


def test_without_go_tests_are_skipped_with_one_line() -> None:
    """A laptop without Go runs everything else."""
    report = run_one_test({**WITHOUT_GO, REQUIRED: ""})

    assert re.search(rf"^SKIPPED \[1\] .*: {re.escape(UNMET)}$", report, re.MULTILINE)
    assert "1 skipped" in report


def test_where_the_cluster_is_required_that_is_an_error() -> None:
    """CI cannot pass by skipping."""
    report = run_one_test({**WITHOUT_GO, REQUIRED: "1"})

    assert f"{REQUIRED}=1, but {UNMET}" in report
    assert "1 error" in report


def test_a_first_build_says_what_it_builds_and_how_long_it_takes(tmp_path: Path) -> None:
    """Before each program: its estimate, and that of all that is left; afterwards there is nothing more to say."""
    if binaries.go_unmet():
        skip_because(binaries.go_unmet())
    told: list[str] = []
    told_again: list[str] = []

    Binaries(tmp_path).build(told.append, [PAUSE])
    Binaries(tmp_path).build(told_again.append, [PAUSE])

    first, *reminders = told
    assert first == "building pause (about 1 s on two cores, once; all that is missing: 1 s)"
    assert all(each.startswith("still building pause, for ") for each in reminders)
    assert told_again == []
    assert (Binaries(tmp_path).folder(PAUSE) / "pause").exists()


def test_something_long_says_that_it_still_goes_on() -> None:
    """Minutes without a word would look like a hang."""
    told: list[str] = []
    began = time.monotonic()

    with reminding(told.append, "building", interval=0.01):
        wait_until("two reminders", lambda: len(told) > 1, timeout=60)

    possible = range(round(time.monotonic() - began) + 1)
    assert told[0] in [f"still building, for {spoken(seconds)} now" for seconds in possible]


@pytest.mark.parametrize(("seconds", "words"), [(1, "1 s"), (59, "59 s"), (90, "1 min 30 s"), (661, "11 min")])
def test_times_are_said_as_people_say_them(seconds: float, words: str) -> None:
    """Nobody needs to divide by 60."""
    assert spoken(seconds) == words
