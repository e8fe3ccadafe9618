"""`make demo`, from its first line to its last."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from installed import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def demonstrate(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run it as `make demo` does."""
    command = [sys.executable, "-m", "demo", "--folder", str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)


def processes_of(folder: Path) -> list[psutil.Process]:
    """Return the living processes that were started for this folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and str(folder) in "".join(process.environ().values()):
                found.append(process)
        except psutil.Error:
            continue
    return [process for process in found if process.pid != os.getpid()]


@pytest.mark.timeout(660)
def test_the_schedules_run_trains_live_and_is_summed_up_and_nothing_is_left(tmp_path: Path) -> None:
    """What a stranger sees: a scheduled run, lines while the task is deferred, a good model where it was promised."""
    done = demonstrate(tmp_path)

    said = done.stdout
    assert done.returncode == 0, said + done.stderr
    assert "its schedule made the run scheduled__" in said
    assert re.search(r"^train deferred │ .*epoch 1/", said, re.MULTILINE)
    assert "as the file is" in said
    accuracies = [float(value) for value in re.findall(r"held_out/accuracy = ([\d.]+)", said)]
    assert accuracies
    assert min(accuracies) >= 0.97
    assert processes_of(tmp_path) == []


@pytest.mark.timeout(660)
def test_a_component_that_cannot_start_is_shown_with_its_log_and_the_others_are_stopped(tmp_path: Path) -> None:
    """Somebody whose port is taken sees what the API server said, and nothing goes on running."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "demo", "--folder", str(tmp_path), "--port", str(port)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)

    assert done.returncode == 1
    assert "the demonstration failed: api-server has ended" in done.stdout
    assert "address already in use" in done.stdout
    assert processes_of(tmp_path) == []
