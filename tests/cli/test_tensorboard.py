"""`ptjob tensorboard` on this machine: a real TensorBoard on a real job's events, as long as somebody looks."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("tensorboard")

if TYPE_CHECKING:
    from machine import Machine

WRITES = """
import os
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
writer = EventFileWriter(os.environ["PTJOB_TFEVENTS_DIR"])
writer.add_event(Event(step=1, summary=Summary(value=[Summary.Value(tag="loss", simple_value=0.5)])))
writer.close()
"""


def looking(machine: Machine, *words: str) -> subprocess.Popen[str]:
    program = f"from ptjob_provider.cli import main; main({['--root', str(machine.root), 'tensorboard', *words]!r})"
    return subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "PTJOB_BACKEND": "local"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def address_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tags(address: str) -> list[str]:
    """Return what the page draws, once TensorBoard has read its folder."""
    for _ in range(300):
        with urllib.request.urlopen(f"{address}data/plugin/scalars/tags", timeout=30) as answer:  # noqa: S310 - loopback
            if found := [tag for run in json.load(answer).values() for tag in run]:
                return found
        time.sleep(0.1)
    pytest.fail("it reads nothing")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_jobs_curves_are_shown_until_the_looking_ends(machine: Machine, number: signal.Signals) -> None:
    """Also when the job is gone; nothing runs afterwards."""
    words = ("--name", "curves", "--image", "none", "--tfevents", "pvc://models/logs", "--tensorboard")
    ran = machine.ptjob("run", *words, "--", "python", "-c", WRITES)
    assert ran.exit_code == 0, ran.output
    assert "tensorboard does not apply on this machine: it is shown by `ptjob tensorboard`" in ran.stderr

    process = looking(machine, "curves")
    address = address_of(process)
    drawn = tags(address)
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    machine.ptjob("delete", "curves")
    gone = machine.ptjob("tensorboard", "curves")

    assert drawn == ["loss"]
    assert (process.returncode, "shows pvc://models/logs" in said) == (0, True), said
    place = ("127.0.0.1", int(address.rstrip("/").rpartition(":")[2]))
    with pytest.raises(OSError, match="refused"), socket.create_connection(place):
        pass
    assert gone.exit_code == 3
    assert "ptjob tensorboard pvc://CLAIM/PATH" in gone.output


def test_a_folder_is_shown_on_the_port_that_is_asked_for(machine: Machine) -> None:
    """And refused if somebody has it."""
    (machine.root / "claims" / "default" / "models").mkdir(parents=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    process = looking(machine, "pvc://models", "--port", str(port))
    address = address_of(process)
    second = machine.ptjob("tensorboard", "pvc://models", "--port", str(port))
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)

    assert address == f"http://127.0.0.1:{port}/"
    assert second.exit_code == 2
    assert f"--port: {port} is not allowed; a port that is free" in second.output


def test_what_cannot_be_shown_is_said(machine: Machine) -> None:
    """A job without events, a claim that is not there."""
    ran = machine.ptjob("run", "--name", "bare", "--image", "none", "--", "true")

    bare, missing = machine.ptjob("tensorboard", "bare"), machine.ptjob("tensorboard", "pvc://nowhere/logs")

    assert ran.exit_code == 0, ran.output
    assert (bare.exit_code, "tfevents: the job has declared none" in bare.output) == (2, True)
    assert (missing.exit_code, "a claim of namespace default" in missing.output) == (2, True)


def test_without_tensorboard_the_package_is_named(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to install; a patch, because this environment has it."""
    (machine.root / "claims" / "default" / "models").mkdir(parents=True)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)

    result = machine.ptjob("tensorboard", "pvc://models")

    assert result.exit_code == 2
    assert "pip install tensorboard" in result.output
