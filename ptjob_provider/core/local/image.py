"""Read from the Dockerfile of an image how to start its program on this machine; nothing is built.

Of the last stage, ENTRYPOINT, CMD, WORKDIR and ENV are applied, and COPY maps paths of the image to files of the build
context. All other instructions are reported as not applied; so is a COPY that names anything but files of the context.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from dockerfile_parse import DockerfileParser
from dockerfile_parse.util import WordSplitter

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.local.store import parsed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_HEREDOC = re.compile(rb"(?ims)^(\s*(?:RUN|COPY|ADD)\s[^\n]*<<-?[\"']?(\w+)[^\n]*\n).*?^\s*\2\s*$")
"""Instruction with a heredoc; only the first group, the instruction's first line, is kept."""

_SYSTEM = re.compile(
    "/(bin|etc|home|lib|lib64|media|mnt|opt|root|sbin|srv|tmp|var|usr(/(bin|lib|sbin|share|local(/(bin|lib))?))?)?"
)
_QUIET = {"ARG", "COMMENT", "ENV", "FROM", "LABEL", "MAINTAINER"}
_FLAGS = ("--chmod=", "--chown=", "--link")
"""Flags of COPY that do not change which files are copied."""


@dataclass(kw_only=True)
class ImageFacts:
    """Properties of an image that its process needs.

    Attributes:
        python: the interpreter that replaces the image's.
        entrypoint: from ENTRYPOINT, in exec form.
        cmd: from CMD, in exec form.
        working_dir: from WORKDIR; "" if not set.
        env: from ENV.
        files: image path → path on this machine, from COPY; a directory includes its content.
        directories: paths of directories in the image: from WORKDIR, and the targets of COPY.
    """

    python: str
    entrypoint: Sequence[str] = ()
    cmd: Sequence[str] = ()
    working_dir: str = ""
    env: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    directories: list[str] = field(default_factory=list)


def read_image(context: Path, *, python: str, image: str) -> tuple[ImageFacts, list[str]]:
    """Return the facts of the context's Dockerfile, and what of it is not applied.

    Raises:
        InvalidSpec: there is no Dockerfile.
    """
    file = context / "Dockerfile"
    if not file.is_file():
        raise InvalidSpec.of(f"images[{image}].context", str(context), "allowed: a directory with a Dockerfile")
    dockerfile = DockerfileParser(fileobj=BytesIO(_HEREDOC.sub(rb"\1", file.read_bytes())))
    instructions = [(each["instruction"], each["value"] or "") for each in dockerfile.structure]
    starts = [number for number, (name, _) in enumerate(instructions) if name == "FROM"]
    unapplied = ["stages before the last"] if len(starts) > 1 else []
    facts = ImageFacts(python=python, env=dict(dockerfile.envs))
    for name, value in instructions[max(starts, default=0) :]:
        words = list(WordSplitter(value, args=dockerfile.args, envs=facts.env).split())
        if name == "ENTRYPOINT":
            facts.entrypoint = _command(value)
        elif name == "CMD":
            facts.cmd = _command(value)
        elif name == "WORKDIR":
            facts.working_dir = _absolute(facts, " ".join(words))
        elif name == "COPY":
            unapplied += [] if _is_copied(facts, words, context.absolute()) else [f"COPY {value}"]
        elif name not in _QUIET:
            unapplied.append(name)
    places = [path for path in (*facts.directories, facts.working_dir) if path and not _SYSTEM.fullmatch(path)]
    return replace(facts, directories=places), list(dict.fromkeys(unapplied))


def _command(value: str) -> list[str]:
    words = parsed(value.encode())
    if isinstance(words, list) and all(isinstance(word, str) for word in words):
        return words
    return ["/bin/sh", "-c", value]


def _is_copied(facts: ImageFacts, words: Sequence[str], context: Path) -> bool:
    *sources, target = [word for word in words if not word.startswith(_FLAGS)]
    names = [source.lstrip("/") for source in sources]
    found = [[context / name] if (context / name).exists() else sorted(context.glob(name)) for name in names]
    if not all(found) or any(".." in PurePosixPath(name).parts for name in names):
        return False
    paths, place = [path for each in found for path in each], _absolute(facts, target)
    known = {facts.working_dir, *facts.directories}
    if target.endswith("/") or place in known or len(paths) > 1 or paths[0].is_dir():
        facts.directories.append(place)
        for path in paths:
            for child in sorted(path.iterdir()) if path.is_dir() else [path]:
                facts.files[f"{place.rstrip('/')}/{child.name}"] = str(child)
    else:
        facts.files[place] = str(paths[0])
    return True


def _absolute(facts: ImageFacts, path: str) -> str:
    return str(PurePosixPath(facts.working_dir or "/") / path)


_PYTHON = re.compile(r"(?:/\S*/)?python(?:3(?:\.\d+)?)?")
_TORCHRUN = re.compile(r"(?:/\S*/)?torchrun")


def command_line(container: Mapping[str, Any], image: ImageFacts) -> list[str]:
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
