"""Write the fields of a job into the docstrings of the classes that take them as arguments; `--check` only compares.

The texts come from the fields of `TrainingJob`: the first sentence, and the one about None.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from reference import AIRFLOW, KFP, attribute_texts, definition

from ptjob_provider.core.spec import TrainingJob

if TYPE_CHECKING:
    from collections.abc import Mapping

TARGETS: Mapping[tuple[Path, str], Mapping[str, str]] = {
    (AIRFLOW / "operators.py", "PyTorchJobOperator"): {
        "name": "Readable beginning of the job's name. None: the manifest's name, else the task id.",
        "namespace": "Namespace of the job. None: the manifest's namespace, else the connection's, else the "
        "namespace of Airflow's pod, else `default`.",
    },
    (KFP / "component.py", "pytorchjob_op"): {
        "name": "Readable beginning of the job's name. None: the manifest's name, else the task's name.",
        "namespace": "Namespace of the job. None: the step's own; in another one the job has no owner, see "
        "docs/how-to/kubeflow-pipelines.md.",
    },
}
"""File and name of each class or function with such a docstring, and the texts that differ there."""


def written(file: Path, name: str) -> str:
    """Return the file's text with all fields of a job at the beginning of `Args` in this docstring."""
    text = file.read_text()
    docstring = ast.get_docstring(definition(file, name), clean=False) or ""
    head, _, body = docstring.partition("    Args:\n")
    entries, mark, rest = body.partition("\n\n")
    fields = {**attribute_texts(TrainingJob), **TARGETS[file, name]}
    own = [entry for entry in re.split(r"\n(?= {8}\S)", entries.rstrip()) if entry.split(":")[0].strip() not in fields]
    lines = [*(_entry(field, description) for field, description in fields.items()), *own]
    end = f"{mark}{rest}" if mark else body.removeprefix(entries.rstrip())
    return text.replace(docstring, "\n".join([f"{head}    Args:", *lines]) + end)


def _entry(field: str, text: str) -> str:
    sentences = re.split(r"(?<=\.)\s+(?=[A-Z`])", " ".join(text.split()))
    about_none = [each for each in sentences[1:] if each.startswith("None:")]
    short = " ".join([sentences[0], *about_none])
    return textwrap.fill(
        f"{field}: {short}", 120, initial_indent=" " * 8, subsequent_indent=" " * 12, break_on_hyphens=False
    )


def main() -> int:
    """Write the docstrings, or with `--check` print those that differ; return the exit code."""
    outdated = [target for target in TARGETS if written(*target) != target[0].read_text()]
    if "--check" in sys.argv:
        print(*(f"{file}: {name} differs; run {Path(__file__).name}" for file, name in outdated), sep="\n")
        return len(outdated)
    for target in outdated:
        target[0].write_text(written(*target))
    return 0


if __name__ == "__main__":
    sys.exit(main())
