"""The arguments of whatever takes a job's fields are generated from the fields of `TrainingJob`."""

from __future__ import annotations

import subprocess
import sys

from guide_pages import DOCS


def test_operator_component_and_step_have_the_parameters_and_texts_of_the_declared_fields() -> None:
    """If this fails after a change of a field, run `scripts/signatures.py`."""
    program = str(DOCS.parent / "scripts" / "signatures.py")

    done = subprocess.run([sys.executable, program, "--check"], capture_output=True, text=True, check=False)

    assert (done.stdout.strip(), done.stderr, done.returncode) == ("", "", 0)
