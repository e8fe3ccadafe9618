"""Tests of jobs whose disk is full: a small file system in a mount namespace of its own, on which a training writes."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PTJOB = f'"{sys.executable}" -c "from ptjob_provider.cli import main; main()" --root "$0/jobs"'
LOGS_WITHOUT_END = "while True: print('y' * 999)"
FILLS = "import time\ntry:\n    open('{}/big', 'wb').write(bytes(2**23))\nexcept OSError: time.sleep(600)"


@pytest.fixture
def small(tmp_path: Path) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """Return a function that runs a shell script on a disk of three megabytes, which is mounted at `$0`."""
    if subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs a kernel that allows mount namespaces")

    def run(script: str) -> subprocess.CompletedProcess[str]:
        mounted = f'mount -t tmpfs -o size=3m none "$0"\n{script}'
        words = ["unshare", "-rm", "sh", "-c", mounted, str(tmp_path)]
        return subprocess.run(words, check=False, capture_output=True, text=True)

    return run


def test_a_log_that_fills_the_disk_ends_the_job_with_that_reason_and_the_job_can_be_deleted(
    small: Callable[[str], subprocess.CompletedProcess[str]],
) -> None:
    """Of all commands, none ends in a traceback; then there is room for the next job."""
    done = small(
        f"""
        {PTJOB} run --name fills -- python -c "{LOGS_WITHOUT_END}" > /dev/null
        {PTJOB} list -o name
        {PTJOB} submit --name next -- true
        {PTJOB} delete fills
        {PTJOB} run --name next -- echo works
        """
    )

    assert done.stdout.splitlines() == ["fills", "default/fills is deleted; its claims are as they were", "works"]
    assert "default/fills failed: what it had started was ended: the disk of " in done.stderr
    assert "Error: default/next: the disk of " in done.stderr
    assert done.stderr.count("make room, for example with `ptjob delete NAME`") == 2
    assert "Traceback" not in done.stderr


def test_a_job_that_runs_on_a_full_disk_can_be_deleted(
    small: Callable[[str], subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """Its supervisor is told on room that was kept for that."""
    done = small(
        f"""
        {PTJOB} submit --name runs -- python -c "{FILLS.format(tmp_path)}" 2> /dev/null
        until [ "$(df --output=avail "$0" | tail -1)" -lt 80 ]; do sleep 0.1; done
        {PTJOB} delete runs
        rm "$0/big"
        {PTJOB} list -o name
        """
    )

    assert done.stdout.splitlines()[1:] == ["default/runs is deleted; its claims are as they were"]
    assert done.stderr == ""
