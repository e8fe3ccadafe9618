"""The docstrings of a job's fields are generated from those of `TrainingJob`."""

from __future__ import annotations

import subprocess
import sys

from guide_pages import DOCS


def test_all_docstrings_describe_the_fields_of_a_job_alike() -> None:
    """If this fails after a change of a field, run `scripts/docstrings.py`."""
    program = str(DOCS.parent / "scripts" / "docstrings.py")

    done = subprocess.run([sys.executable, program, "--check"], capture_output=True, text=True, check=False)

    assert (done.stdout.strip(), done.stderr, done.returncode) == ("", "", 0)
