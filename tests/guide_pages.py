"""The contents of the pages for users of other guides, for the tests that run them on this machine and on a cluster."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

DOCS = Path(__file__).parent.parent / "docs"
DIGITS = Path(__file__).parent.parent / "docker" / "digits"


@dataclass(frozen=True)
class Page:
    """A page with one manifest and one session."""

    name: str
    image: str

    @property
    def text(self) -> str:
        return (DOCS / self.name).read_text()

    @property
    def file(self) -> str:
        """The file name of the manifest in the session."""
        return next(word for line in self.session() for word in line if word.endswith(".yaml"))

    def manifest(self, image: str = "") -> str:
        """Return the page's manifest, with another image if one is given."""
        (found,) = re.findall(r"```yaml\n(.*?)```", self.text, re.DOTALL)
        return str(found.replace(self.image, image or self.image))

    def session(self, heading: str = "", replaced: Mapping[str, str] | None = None) -> list[list[str]]:
        """Return the words of each line of the session below a heading, with some words replaced."""
        part = self.text.partition(f"## {heading}")[2].partition("\n## ")[0] if heading else self.text
        lines = [shlex.split(line) for line in part.splitlines() if re.match(r"    (ptjob|kubectl) ", line)]
        return [[(replaced or {}).get(word, word) for word in line] for line in lines]


@dataclass(frozen=True)
class Reader:
    """A reader who saves the files of tutorials in a folder and runs their commands there, with nothing configured."""

    folder: Path

    def save(self, page: str) -> None:
        """Save each block that has a file name."""
        for name, text in re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```', page, re.DOTALL | re.MULTILINE):
            (self.folder / name).write_text(text)

    def run(self, *command: str, given: str = "", fails: bool = False, **variables: str) -> str:
        """Run a command and return its output."""
        outside = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PTJOB"))}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        home = {"HOME": str(self.folder)}  # jobs are in ~/airflow/ptjob
        soon = {"AIRFLOW__CORE__DEFAULT_TASK_RETRY_DELAY": "1"}  # a failed task is retried soon
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={**outside, **home, **soon, **variables, "PATH": path},
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert fails or done.returncode == 0, done.stdout
        return done.stdout


def blocks(page: str, language: str) -> list[str]:
    """Return the tested blocks of a page in a language."""
    return re.findall(rf"^<!-- tested: [^\n]*\n```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


def lines_below(page: str, *headings: str) -> str:
    """Return the tested commands of a page below the headings."""
    parts = [page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0] for heading in headings]
    return "".join(block for part in parts for block in blocks(part, "bash"))


OPERATORS = Page("tutorials/from-kubectl.md", "mnist:1")
T9K = Page("tutorials/from-t9k.md", "t9kpublic/pytorch-1.13.0:sdk-0.5.2")

FOLDER = "tutorial-examples/job/pytorchtrainingjob/ddp"
"""The directory of the script in T9k's tutorial, in its claim."""

TRAINED = re.compile(r"^parameters agree on [24] ranks: \w{64}$", re.MULTILINE)
"""Rank 0's last line if gradients were exchanged."""


def have_examples(digits: str) -> None:
    """Write the tutorial's script to the working directory, as in a clone of its repository; it trains digits."""
    script = Path(FOLDER) / "torch_mnist_trainingjob.py"
    script.parent.mkdir(parents=True)
    run = "runpy.run_path(f'{folder}/train.py', run_name='__main__')"
    script.write_text(f"import runpy, sys\nfolder = {digits!r}\nsys.path.insert(0, folder)\n{run}\n")


def accuracy(log: str) -> float:
    """Return the held-out accuracy in a log."""
    (found,) = re.findall(r"held-out accuracy (\d\.\d+)", log)
    return float(found)
