"""Tests of `ptjob tensorboard` on this machine: a real TensorBoard with a real job's events."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager, suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from cluster.fixtures import import_or_skip
from cluster.shell import until
from curves import WRITES, tags

import_or_skip("tensorboard")

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from click.testing import Result

    from machine import Machine
    from ptjob_provider.core.inspector import TensorBoardView


@contextmanager
def looking(machine: Machine, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `ptjob tensorboard` in a process; yield it and its address. The process ends with the block at the latest."""
    program = f"from ptjob_provider.cli import main; main({['--root', str(machine.root), 'tensorboard', *words]!r})"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "PTJOB_BACKEND": "local"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def is_refused(address: str) -> bool:
    """Return whether connections to the address are refused."""
    place = ("127.0.0.1", int(address.rstrip("/").rpartition(":")[2]))
    with suppress(ConnectionRefusedError), socket.create_connection(place):
        return False
    return True


def test_a_jobs_curves_are_shown_until_the_looking_ends(machine: Machine) -> None:
    """They can also be shown once the job is deleted; no process is left."""
    words = ("--name", "curves", "--image", "none", "--tfevents", "pvc://models/logs", "--tensorboard")
    ran = machine.ptjob("run", *words, "--", "python", "-c", WRITES)
    assert ran.exit_code == 0, ran.output
    assert "tensorboard (`ptjob tensorboard` shows the curves)" in ran.stderr

    with looking(machine, "curves") as (process, address):
        drawn = [tag for run in tags(address, timeout=240).values() for tag in run]
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=240)
    machine.ptjob("delete", "curves")
    gone = machine.ptjob("tensorboard", "curves")

    assert drawn == ["loss"]
    assert (process.returncode, "shows pvc://models/logs" in said) == (0, True), said
    assert is_refused(address)
    assert gone.exit_code == 3
    assert "ptjob tensorboard pvc://CLAIM/PATH" in gone.output


def test_a_folder_is_shown_on_the_port_that_is_asked_for(machine: Machine) -> None:
    """A port in use is an error."""
    (machine.root / "claims" / "default" / "models").mkdir(parents=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    with looking(machine, "pvc://models", "--port", str(port)) as (process, address):
        second = machine.ptjob("tensorboard", "pvc://models", "--port", str(port))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=240)

    assert address == f"http://127.0.0.1:{port}/"
    assert second.exit_code == 2
    assert f"--port: {port} is not allowed; allowed: a port that is free" in second.output


def test_a_killed_command_leaves_no_tensorboard(machine: Machine) -> None:
    """TensorBoard is in a session of its own, so nothing else would end it."""
    (machine.root / "claims" / "default" / "models").mkdir(parents=True)

    with looking(machine, "pvc://models") as (process, address):
        assert not is_refused(address)
        process.kill()
        process.wait(timeout=240)
        until("TensorBoard to end", lambda: is_refused(address), timeout=240)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_tensorboard_that_is_being_started_ends_with_the_command(
    ptjob: Callable[..., Result], number: signal.Signals
) -> None:
    """Not after the minutes that a pod may take; a slow stand-in replaces the inspector."""
    done: list[str] = []

    @asynccontextmanager
    async def slow(_: TensorBoardView) -> AsyncIterator[str]:
        try:
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), number)  # closing a terminal sends it twice
            await asyncio.sleep(60)
            yield "never"
        finally:
            await asyncio.sleep(0.01)
            done.append("deleted")

    result = ptjob(None, "tensorboard", "pvc://models/logs", inspector=SimpleNamespace(tensorboard=slow))

    assert (result.exit_code, done) == (130, ["deleted"])


def test_a_tensorboard_without_events_is_refused(machine: Machine) -> None:
    """For a job without events, and for a claim that does not exist."""
    ran = machine.ptjob("run", "--name", "bare", "--image", "none", "--", "true")

    bare, missing = machine.ptjob("tensorboard", "bare"), machine.ptjob("tensorboard", "pvc://nowhere/logs")

    assert ran.exit_code == 0, ran.output
    assert (bare.exit_code, "tfevents: the job has declared none" in bare.output) == (2, True)
    assert (missing.exit_code, "a claim of namespace default" in missing.output) == (3, True)
    (machine.root / "claims" / "default" / "models").mkdir(parents=True)
    empty = machine.ptjob("tensorboard", "pvc://models/none")
    assert (empty.exit_code, "path: 'none' is not there" in empty.output) == (3, True)


def test_without_tensorboard_the_package_is_named(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command to install it; a patch hides the package, which is installed here."""
    (machine.root / "claims" / "default" / "models").mkdir(parents=True)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)

    result = machine.ptjob("tensorboard", "pvc://models")

    assert result.exit_code == 2
    assert "pip install tensorboard" in result.output
