"""What is known of an image through the directory that stands in for it, and what of it a container runs; pure."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PYTHON = re.compile(r"(?:/\S*/)?python(?:3(?:\.\d+)?)?")
_TORCHRUN = re.compile(r"(?:/\S*/)?torchrun")


@dataclass(frozen=True, kw_only=True)
class ImageFacts:
    """What a Dockerfile says that matters to a process.

    Attributes:
        python: the interpreter that stands in for the image's.
        entrypoint: of ENTRYPOINT, in exec form.
        cmd: of CMD, in exec form.
        working_dir: of WORKDIR; empty if none is said.
        env: of ENV.
        files: image path → path on this machine, of COPY and ADD; a directory there stands for all that is in it.
        directories: image paths that the Dockerfile makes directories of: of WORKDIR, and targets of COPY and ADD.
    """

    python: str
    entrypoint: Sequence[str] = ()
    cmd: Sequence[str] = ()
    working_dir: str = ""
    env: Mapping[str, str]
    files: Mapping[str, str]
    directories: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-safe fields."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Rebuild what `to_dict` returned."""
        return cls(**fields)


def arguments(container: Mapping[str, Any], image: ImageFacts) -> list[str]:
    """Return what the container runs: `command` replaces ENTRYPOINT and CMD, `args` replaces CMD."""
    command, args = container.get("command"), container.get("args")
    if command:
        return [*command, *(args or ())]
    return [*image.entrypoint, *(args or image.cmd)]


def with_interpreter(argv: Sequence[str], python: str) -> list[str]:
    """Return the command with this machine's interpreter in the place of the image's."""
    program, *rest = argv
    if _PYTHON.fullmatch(program):
        return [python, *rest]
    if _TORCHRUN.fullmatch(program):
        return [python, "-m", "torch.distributed.run", *rest]
    return list(argv)
