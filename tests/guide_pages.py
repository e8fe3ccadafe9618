"""What the pages for whoever comes from a guide say, for the tests that run it: on this machine and on a cluster."""

from __future__ import annotations

import re
import shlex
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
