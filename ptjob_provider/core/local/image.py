"""Read from the Dockerfile of an image how to start its program on this machine; nothing is built.

ENTRYPOINT, CMD, WORKDIR and ENV are applied; COPY and ADD map paths of the image to files of the build context. An
instruction that only a build could execute is reported as not applied: RUN, files of other stages or addresses,
heredocs. So are instructions without a meaning here, such as USER and EXPOSE.
"""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from dockerfile_parse import DockerfileParser
from dockerfile_parse.util import WordSplitter, extract_key_values

from ptjob_provider.core.errors import InvalidSpec, UnsupportedByBackend
from ptjob_provider.core.local.store import parsed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_FLAGS = re.compile(r"\s*(?:--\S+\s+)*")
_ADDRESS = re.compile(r"://|^git@")
_HEREDOC = re.compile(
    rb"^(\s*(?:RUN|COPY|ADD)\s[^\n]*<<-?[\"']?(\w+)[^\n]*\n).*?^\s*\2\s*$", re.IGNORECASE | re.MULTILINE | re.DOTALL
)
"""Instruction with a heredoc; only the first group, the instruction's first line, is kept."""

_ARCHIVE = re.compile(r"\.(tar|tgz|tar\.[a-z0-9]+)$")
_SYSTEM = re.compile(
    "/(bin|etc|home|lib|lib64|media|mnt|opt|root|sbin|srv|tmp|var|usr(/(bin|lib|sbin|share|local(/(bin|lib))?))?)?"
)
_QUIET = {"COMMENT", "LABEL", "MAINTAINER"}


@dataclass
class _Stage:
    """Build stage of a Dockerfile, as read so far."""

    entrypoint: list[str] = field(default_factory=list)
    cmd: list[str] = field(default_factory=list)
    cmd_is_inherited: bool = False
    working_dir: str = ""
    env: dict[str, str] = field(default_factory=dict)
    args: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    directories: list[str] = field(default_factory=list)
    unapplied: list[str] = field(default_factory=list)

    def child(self) -> _Stage:
        """Return a stage based on this one."""
        return replace(deepcopy(self), cmd_is_inherited=True, args={})


def read_image(context: Path, *, python: str, image: str) -> tuple[ImageFacts, list[str]]:
    """Return the facts of the context's Dockerfile, and its instructions that are not applied.

    Raises:
        InvalidSpec: there is no Dockerfile, or it names a file that is not in the context.
        UnsupportedByBackend: an instruction would change what runs and cannot be applied.
    """
    file = context / "Dockerfile"
    if not file.is_file():
        raise InvalidSpec.of(f"images[{image}].context", str(context), "allowed: a directory with a Dockerfile")
    stage = _read(file.read_bytes(), context.absolute())
    fields = {name: getattr(stage, name) for name in ("entrypoint", "cmd", "working_dir", "env", "files")}
    places = [path for path in (*stage.directories, stage.working_dir) if path and not _SYSTEM.fullmatch(path)]
    facts = ImageFacts(python=python, directories=places, **fields)
    return facts, list(dict.fromkeys(stage.unapplied))


def _read(content: bytes, context: Path) -> _Stage:
    stages: dict[str, _Stage] = {}
    defaults: dict[str, str] = {}
    stage = _Stage()
    for entry in DockerfileParser(fileobj=BytesIO(_HEREDOC.sub(rb"\1", content)), env_replace=False).structure:
        name, value = entry["instruction"], entry["value"] or ""
        if name == "FROM":
            stage = _begin(value, stages, defaults)
        elif name == "ARG" and not stages:
            defaults |= _pairs(value, stage)
        elif name in ("COPY", "ADD"):
            _copy(stage, name, value, context)
        elif not _is_applied(stage, name, value) and name not in _QUIET:
            stage.unapplied.append(name)
    if not stages:
        raise InvalidSpec.of("Dockerfile", str(context), "allowed: a Dockerfile with a FROM")
    return stage


def _begin(value: str, stages: dict[str, _Stage], defaults: dict[str, str]) -> _Stage:
    words = [word for word in WordSplitter(value, args=defaults).split() if not word.startswith("--")]
    base, name = words[0], words[2] if len(words) > 2 else str(len(stages))  # noqa: PLR2004 - FROM base AS name
    stage = stages[base.lower()].child() if base.lower() in stages else _Stage()
    stages[name.lower()] = stage
    return stage


def _is_applied(stage: _Stage, name: str, value: str) -> bool:
    if name == "SHELL":
        raise UnsupportedByBackend.of("Dockerfile SHELL", f"{value} would change how commands are run")
    if name == "ENTRYPOINT":
        stage.entrypoint = _command(value)
        stage.cmd = [] if stage.cmd_is_inherited else stage.cmd
    elif name == "CMD":
        stage.cmd, stage.cmd_is_inherited = _command(value), False
    elif name == "WORKDIR":
        path = WordSplitter(value, args=stage.args, envs=stage.env).dequote()
        stage.working_dir = _absolute(stage, str(path))
    elif name == "ENV":
        stage.env |= _pairs(value, stage)
    elif name == "ARG":
        stage.args |= _pairs(value, stage) if "=" in value else {}
    else:
        return False
    return True


def _command(value: str) -> list[str]:
    words = parsed(value.encode())
    if isinstance(words, list) and all(isinstance(word, str) for word in words):
        return words
    return ["/bin/sh", "-c", value]


def _copy(stage: _Stage, name: str, value: str, context: Path) -> None:
    rest = _FLAGS.sub("", value, count=1)
    splitter = WordSplitter(rest, args=stage.args, envs=stage.env)
    *sources, target = _command(rest) if rest.startswith("[") else list(splitter.split())
    is_elsewhere = "--from" in value.removesuffix(rest) or rest.startswith("<<")
    if is_elsewhere or any(_ADDRESS.search(source) or _is_unpacked(name, source) for source in sources):
        stage.unapplied.append(f"{name} {value}")
        return
    place = _absolute(stage, target)
    into = target.endswith("/") or len(sources) > 1 or place in {stage.working_dir, *stage.directories}
    for source in sources:
        for path in _matches(context, source):
            _place(stage, path, place, into=into)


def _is_unpacked(name: str, source: str) -> bool:
    return name == "ADD" and _ARCHIVE.search(source) is not None


def _matches(context: Path, source: str) -> Iterator[Path]:
    relative = str(PurePosixPath(source.lstrip("/")))
    if ".." in PurePosixPath(relative).parts:
        raise InvalidSpec.of("Dockerfile COPY", source, "allowed: files of the build context")
    candidates = sorted(context.glob(relative)) if re.search(r"[*?\[]", relative) else [context / relative]
    existing = [path for path in candidates if path.exists()]
    if not existing:
        raise InvalidSpec.of("Dockerfile COPY", source, f"there is no such file in the build context {context}")
    yield from existing


def _place(stage: _Stage, path: Path, target: str, *, into: bool) -> None:
    if not path.is_dir():
        stage.files[f"{target.rstrip('/')}/{path.name}" if into else target] = str(path)
        return
    stage.directories.append(target)
    for child in sorted(path.iterdir()):
        stage.files[f"{target.rstrip('/')}/{child.name}"] = str(child)


def _absolute(stage: _Stage, path: str) -> str:
    return str(PurePosixPath(stage.working_dir or "/") / path)


def _pairs(value: str, stage: _Stage) -> dict[str, str]:
    return dict(extract_key_values(env_replace=True, args=stage.args, envs=stage.env, instruction_value=value))


_PYTHON = re.compile(r"(?:/\S*/)?python(?:3(?:\.\d+)?)?")
_TORCHRUN = re.compile(r"(?:/\S*/)?torchrun")


@dataclass(frozen=True, kw_only=True)
class ImageFacts:
    """Properties of an image that its process needs.

    Attributes:
        python: the interpreter that replaces the image's.
        entrypoint: from ENTRYPOINT, in exec form.
        cmd: from CMD, in exec form.
        working_dir: from WORKDIR; "" if not set.
        env: from ENV.
        files: image path → path on this machine, from COPY and ADD; a directory includes its content.
        directories: paths of directories in the image: from WORKDIR, and the targets of COPY and ADD.
    """

    python: str
    entrypoint: Sequence[str] = ()
    cmd: Sequence[str] = ()
    working_dir: str = ""
    env: Mapping[str, str]
    files: Mapping[str, str]
    directories: Sequence[str] = ()


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
