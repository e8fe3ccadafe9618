"""What somebody sees on a machine that can have no cluster."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from cluster.boot import not_root
from cluster.fixtures import REQUIRED

TESTS = Path(__file__).parent
WITHOUT_GO = {**os.environ, "PATH": "/usr/bin:/bin"}
UNMET = not_root() or "Go 1.26 is needed on PATH"
"""What is said first where Go is missing."""


def run_one_test(environment: dict[str, str]) -> str:
    """Run a test that needs the cluster, as a person would, and return the report."""
    command = [sys.executable, "-m", "pytest", "-q", str(TESTS / "test_isolation.py")]
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
