"""Facts about an image from the directory that replaces it, and a container's command. Pure."""

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
    """Facts of a Dockerfile that matter to a process.

    Attributes:
        python: the interpreter that replaces the image's.
        entrypoint: of ENTRYPOINT, in exec form.
        cmd: of CMD, in exec form.
        working_dir: of WORKDIR; "" if not set.
        env: of ENV.
        files: image path → path on this machine, of COPY and ADD; a directory there includes its content.
        directories: image paths of directories: of WORKDIR, and targets of COPY and ADD.
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
    """Return the container's command line: `command` replaces ENTRYPOINT and CMD, `args` replaces CMD."""
    command, args = container.get("command"), container.get("args")
    if command:
        return [*command, *(args or ())]
    return [*image.entrypoint, *(args or image.cmd)]


def with_interpreter(argv: Sequence[str], python: str) -> list[str]:
    """Return the command with this machine's interpreter in place of the image's."""
    program, *rest = argv
    if _PYTHON.fullmatch(program):
        return [python, *rest]
    if _TORCHRUN.fullmatch(program):
        return [python, "-m", "torch.distributed.run", *rest]
    return list(argv)
