"""Run the programs of docker/digits as local processes, with the environment that a PyTorchJob gives its pods."""

from __future__ import annotations

import contextlib
import importlib.util
import multiprocessing
import os
import re
import runpy
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cluster.fixtures import is_required
from ptjob_provider.core.local.devices import PortReservation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import ModuleType

DIGITS = Path(__file__).parents[2] / "docker" / "digits"
TRAIN = DIGITS / "train.py"

_MISSING = [name for name in ("torch", "tensorboard", "sklearn") if importlib.util.find_spec(name) is None]
NEEDED = [
    pytest.mark.skipif(
        bool(_MISSING) and not is_required(), reason=f"the extra `demo` is not installed: no {', '.join(_MISSING)}"
    ),
]
"""Marks of every test of these programs."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """Exit code and output of a process."""

    code: int
    output: str

    def find(self, pattern: str) -> str:
        """Return the first group of the pattern's only match in the output."""
        (found,) = re.findall(pattern, self.output)
        return str(found)


def start(*command: str | Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Start a Python program that inherits no variable that affects a training, and uses no GPU."""
    return subprocess.Popen(
        [sys.executable, "-B", *map(str, command)],
        env=environment(env or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """Return a minimal inherited environment, updated with these variables."""
    inherited = {name: value for name, value in os.environ.items() if name in {"PATH", "HOME", "LANG", "TMPDIR"}}
    return {**inherited, "PYTHONUNBUFFERED": "1", "CUDA_VISIBLE_DEVICES": "", **more}


def end(process: subprocess.Popen[str], timeout: float = 240) -> Ended:
    """Wait for a process; kill it and raise if it does not end in time."""
    try:
        output, _ = process.communicate(timeout=timeout)
    finally:
        process.kill()
    return Ended(code=process.returncode, output=output)


def run(*command: str | Path, env: Mapping[str, str] | None = None) -> Ended:
    """Run a Python program to its end."""
    return end(start(*command, env=env))


_LOADED = multiprocessing.get_context("forkserver")
_LOADED.set_forkserver_preload(["sklearn.datasets", "sklearn.model_selection", "torch.utils.tensorboard"])


class Loaded:
    """A program that runs in a fork of a process that has imported PyTorch, which takes most of a short program's time.

    That process has only imported the modules that all programs import.
    """

    def __init__(self, *command: str | Path, env: Mapping[str, str] | None = None) -> None:
        self._output = tempfile.NamedTemporaryFile("r")  # noqa: SIM115 - until the process has ended
        call = ([str(word) for word in command], environment(env or {}), self._output.name)
        self._process = _LOADED.Process(target=_run_loaded, args=call)
        self._process.start()

    def end(self) -> Ended:
        """Wait for its end, at most 240 s, and kill it then."""
        self._process.join(timeout=240)
        self._process.kill()
        self._process.join()
        with self._output:
            return Ended(code=self._process.exitcode or 0, output=self._output.read())


def run_loaded(*command: str | Path, env: Mapping[str, str] | None = None) -> Ended:
    """Run a Python program to its end, in a process with PyTorch already imported."""
    return Loaded(*command, env=env).end()


def _run_loaded(command: list[str], env: dict[str, str], output: str) -> None:
    with open(output, "w") as stream:  # noqa: PTH123 - only its descriptor is needed
        for standard in (1, 2):
            os.dup2(stream.fileno(), standard)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = command
    sys.path[0] = str(Path(command[0]).parent)
    runpy.run_path(command[0], run_name="__main__")


@contextlib.contextmanager
def started_ranks(
    *command: str | Path, each: Sequence[Sequence[str | Path]] = ((), ())
) -> Iterator[list[subprocess.Popen[str]]]:
    """Start two processes that connect to each other as the pods of a PyTorchJob do, rank 0 first; reserve their port.

    Args:
        command: command of both.
        each: additional arguments of each.
    """
    reservation = PortReservation()
    world = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(reservation.port), "WORLD_SIZE": "2"}
    try:
        yield [start(*command, *more, env={**world, "RANK": str(rank)}) for rank, more in enumerate(each)]
    finally:
        reservation.close()


def run_ranks(*command: str | Path, each: Sequence[Sequence[str | Path]] = ((), ())) -> list[Ended]:
    """Run two processes that connect to each other to their end, rank 0 first."""
    with started_ranks(*command, each=each) as ranks:
        return [end(process) for process in ranks]


def points(log_dir: Path, tag: str) -> dict[int, float]:
    """Return step → value of one curve, read as TensorBoard reads it."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: PLC0415 - an extra

    events = EventAccumulator(str(log_dir))
    events.Reload()
    return {point.step: point.value for point in events.Scalars(tag)}


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import one of the programs' modules; it must not import another of them."""
    spec = importlib.util.spec_from_file_location(f"digits_{name}", DIGITS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, f"digits_{name}", module)
    spec.loader.exec_module(module)
    return module
