"""What the pages for whoever comes from a guide say, for the tests that run it: on this machine and on a cluster."""

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
        """All of it."""
        return (DOCS / self.name).read_text()

    @property
    def file(self) -> str:
        """The name that the session calls the manifest's file by."""
        return next(word for line in self.session() for word in line if word.endswith(".yaml"))

    def manifest(self, image: str = "") -> str:
        """Return the manifest as it stands there, with another image if one is given."""
        (found,) = re.findall(r"```yaml\n(.*?)```", self.text, re.DOTALL)
        return str(found.replace(self.image, image or self.image))

    def session(self, heading: str = "", replaced: Mapping[str, str] | None = None) -> list[list[str]]:
        """Return the words of each line of the session below a heading, with a test's own in place of some."""
        part = self.text.partition(f"## {heading}")[2].partition("\n## ")[0] if heading else self.text
        lines = [shlex.split(line) for line in part.splitlines() if re.match(r"    (ptjob|kubectl) ", line)]
        return [[(replaced or {}).get(word, word) for word in line] for line in lines]


@dataclass(frozen=True)
class Reader:
    """Somebody who saves the files of tutorials in a folder and runs their lines there, with nothing configured."""

    folder: Path

    def save(self, page: str) -> None:
        """Save each block that has a file's name."""
        for name, text in re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```', page, re.DOTALL | re.MULTILINE):
            (self.folder / name).write_text(text)

    def run(self, *command: str, given: str = "", fails: bool = False, **variables: str) -> str:
        """Run a command and return what it prints."""
        outside = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PTJOB"))}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        home = {"HOME": str(self.folder)}  # jobs are in ~/airflow/ptjob
        soon = {"AIRFLOW__CORE__DEFAULT_TASK_RETRY_DELAY": "1"}  # a failure is known at once
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
    """Return the tested lines of a page below headings."""
    parts = [page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0] for heading in headings]
    return "".join(block for part in parts for block in blocks(part, "bash"))


OPERATORS = Page("tutorials/from-kubectl.md", "mnist:1")
T9K = Page("tutorials/from-t9k.md", "t9kpublic/pytorch-1.13.0:sdk-0.5.2")

SWITCHED = "container pytorch is started with the backend gloo instead of nccl"
NO_GPU = "backend_without_gpu=gloo is set"
FOLDER = "tutorial-examples/job/pytorchtrainingjob/ddp"
"""Where T9k's tutorial has its script, on its claim."""

TRAINED = re.compile(r"^parameters agree on [24] ranks: \w{64}$", re.MULTILINE)
"""What rank 0 says at the end of a training in which gradients were exchanged."""


def have_examples(digits: str) -> None:
    """Put the tutorial's script into the present folder, as a clone of its repository has it; it trains our digits."""
    script = Path(FOLDER) / "torch_mnist_trainingjob.py"
    script.parent.mkdir(parents=True)
    run = "runpy.run_path(f'{folder}/train.py', run_name='__main__')"
    script.write_text(f"import runpy, sys\nfolder = {digits!r}\nsys.path.insert(0, folder)\n{run}\n")


def accuracy(log: str) -> float:
    """Return the accuracy on images that the training has not seen."""
    (found,) = re.findall(r"held-out accuracy (\d\.\d+)", log)
    return float(found)
