"""Tests of `ptjob tensorboard`: on this machine, and with a stand-in of the cluster's inspector."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from click.testing import Result

    from machine import Machine
    from ptjob_provider.core.inspector import TensorBoardView


def test_the_command_that_shows_a_jobs_curves_is_printed(machine: Machine) -> None:
    """The folder is the one that the job writes to; the claim is enough, as after the job is deleted."""
    words = ("--name", "curves", "--image", "none", "--tfevents", "pvc://models/logs", "--tensorboard")
    ran = machine.ptjob("run", *words, "--", "true")

    shown, folder = machine.ptjob("tensorboard", "curves"), machine.ptjob("tensorboard", "pvc://models")
    machine.ptjob("delete", "curves")
    gone = machine.ptjob("tensorboard", "curves")

    models = machine.root / "claims" / "default" / "models"
    assert "tensorboard (`ptjob tensorboard` says how to show the curves)" in ran.stderr
    assert shown.stdout == f"tensorboard --logdir {models}/logs\n"
    assert folder.stdout == f"tensorboard --logdir {models}\n"
    assert (gone.exit_code, "ptjob tensorboard pvc://CLAIM/PATH" in gone.output) == (3, True)


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
