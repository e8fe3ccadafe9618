"""Tests of README's examples with the installed wheel."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from installed import ROOT
from ptjob_provider import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from installed import Installed

SHOW = """
import json
from shortest import dag
print(json.dumps({"dag": dag.dag_id, "tasks": {task.task_id: type(task).__name__ for task in dag.tasks}}))
"""


def block(language: str) -> str:
    """Return README's first code block in a language."""
    found = re.search(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def test_the_shortest_dag_is_a_dag(installed_wheel: Installed, tmp_path: Path) -> None:
    (tmp_path / "shortest.py").write_text(block("python").replace("):\n    PyTorch", ") as dag:\n    PyTorch"))

    said = json.loads(installed_wheel.run("python", "-c", SHOW, cwd=tmp_path).splitlines()[-1])

    assert said == {"dag": "shortest", "tasks": {"train": "PyTorchJobOperator"}}


def test_the_lines_that_install_the_package_pin_this_version() -> None:
    """The lines for an existing Airflow and for an image."""
    pinned = re.findall(r"ptjob-provider\[airflow\]==(\S+?)\"", (ROOT / "README.md").read_text())

    assert len(pinned) == 2
    assert set(pinned) == {__version__}


def test_the_documented_commands_of_make_exist() -> None:
    """README and CONTRIBUTING name only targets that the Makefile has."""
    texts = [(ROOT / name).read_text() for name in ("README.md", "CONTRIBUTING.md")]
    named = {word for text in texts for word in re.findall(r"(?:^ {4}|`)make ([a-z-]+)", text, re.MULTILINE)}
    rules = re.findall(r"^([a-z][a-z -]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    words = {word for rule in rules for word in rule.split()}

    assert {"demo", "test"} <= named <= words
