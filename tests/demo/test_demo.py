"""Tests of `make demo` and `make demo-retraining`, run as a whole."""

from __future__ import annotations

import json
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

pytestmark = pytest.mark.timeout(1560)


def demonstrate(folder: Path, module: str = "demo") -> subprocess.CompletedProcess[str]:
    """Run a demonstration module, by default that of `make demo`."""
    command = [sys.executable, "-m", module, "--folder", str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1500, check=False)


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


def test_the_schedules_run_trains_live_and_is_summed_up_and_nothing_is_left(tmp_path: Path) -> None:
    """A scheduled run, log lines while the task is deferred, and a good model at the declared path."""
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


def test_a_component_that_cannot_start_is_shown_with_its_log_and_the_others_are_stopped(tmp_path: Path) -> None:
    """The API server's port is in use: the output shows its log, and no process is left."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "demo", "--folder", str(tmp_path), "--port", str(port)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1500, check=False)

    assert done.returncode == 1
    assert "the demonstration failed: api-server has ended" in done.stdout
    assert "address already in use" in done.stdout
    assert processes_of(tmp_path) == []


def test_arriving_data_is_trained_on_and_what_is_worse_is_refused(tmp_path: Path) -> None:
    """Four trainings: two are promoted, one on corrupted data is refused, and one on repaired data is promoted."""
    done = demonstrate(tmp_path, "demo.retraining")

    said = done.stdout
    assert done.returncode == 0, said + done.stderr
    shown = re.findall(
        r"^ *(\d)  (\d-\w{12}) +(00\d(?: 00\d)*) +(\d) +(\d+) +(0\.\d{4}) .* (champion \d|refused, .*?) *$",
        said,
        re.MULTILINE,
    )
    assert [(new, batches, images) for _, _, new, batches, images, _, _ in shown] == [
        ("001", "1", "60"),
        ("002 003", "3", "360"),
        ("004", "4", "760"),
        ("004", "4", "760"),
    ]
    assert [outcome for *_, outcome in shown] == [
        "champion 1",
        "champion 2",
        "refused, champion 2 stays",
        "champion 3",
    ]
    assert len({version for _, version, *_ in shown}) == 4
    accuracies = [float(accuracy) for *_, accuracy, _ in shown]
    assert accuracies[2] < accuracies[1] < accuracies[3]
    assert re.search(r"^train deferred │ .*epoch 1/", said, re.MULTILINE)
    assert "digits_champion learned from the asset's event that champion 3 is in service" in said
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir() and not path.is_symlink())
    current = json.loads((folder / "jobs/claims/default/digits/champion/current.json").read_text())
    assert current["accuracy"] == pytest.approx(accuracies[3], abs=1e-4)
    picture = (folder / "accuracy.svg").read_text()
    assert "refused,&#160;champion&#160;2&#160;stays" in picture
    assert "url(http" not in picture
    assert processes_of(tmp_path) == []
