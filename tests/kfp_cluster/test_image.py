"""Tests of the step's image as its Dockerfile builds it: user, writable paths and contents."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from kfp_cluster.lab import new_run
from kfp_cluster.step_pod import ANY_USER, Try
from ptjob_provider.core.identity import JobRef

if TYPE_CHECKING:
    from kfp_cluster.lab import Lab

DIGEST = """
import hashlib, pathlib, ptjob_provider
package = pathlib.Path(ptjob_provider.__file__).parent
files = sorted(path for path in package.rglob("*.py"))
lines = [f"{file.relative_to(package)} {hashlib.sha256(file.read_bytes()).hexdigest()}" for file in files]
print(ptjob_provider.__version__, hashlib.sha256("".join(lines).encode()).hexdigest())
"""
WRITES = "for place in / /opt/step /home; do touch $place/x 2>&1; done; touch /tmp/x && echo written"


def test_a_step_runs_as_any_user_and_writes_only_to_tmp(lab: Lab) -> None:
    """It has a read-only root file system and no capabilities, and contains the package of this tree."""
    run = new_run("guest")
    step = lab.start(Try(run=run))
    step.wait_for_line("waiting")

    user = step("id", "-u").strip()
    written = step("sh", "-c", WRITES).splitlines()
    inside = step("python", "-c", DIGEST)
    lab.release(JobRef.of(lab.job(run)))

    assert step.wait() == 0, step.log()
    assert user == str(ANY_USER)
    assert [line for line in written if "Read-only file system" not in line] == ["written"]
    assert len(written) == 4
    assert inside == subprocess.check_output([sys.executable, "-c", DIGEST], text=True)
