"""Tests of the line with the training's progress below its log, on a terminal of 80 columns."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from at_terminal import AtTerminal
from ptjob_provider.core.training_progress import Progress, progress_text
from rows import each_row

if TYPE_CHECKING:
    from pathlib import Path

    from machine import Machine

BAR = "Training:  50%|█████     | 5/10 [00:05<00:05,  1.00it/s, loss=0.5]"
SHOWN = "step 5/10 (50%) · 1 steps/s · 0:00:05 to step 10 · loss 0.5"


def program(
    go: Path, *, first: str = f"\\r{BAR}", then: str = "\\rTraining: 100%|█| 10/10 [00:10<00:00, 1.0it/s]\\nsaved\\n"
) -> str:
    """Return a program that writes, waits for a file, and writes again."""
    return (
        f"import os, time\nprint('starts\\n{first}', end='', flush=True)\n"
        f"while not os.path.exists({str(go)!r}): time.sleep(0.05)\nprint('{then}', end='')"
    )


def test_the_progress_is_below_the_log_and_gone_at_the_end(machine: Machine, tmp_path: Path) -> None:
    go = tmp_path / "go"
    terminal = AtTerminal(machine.command("run", "--name", "live", "python", "-c", program(go)))

    during = terminal.until(lambda lines: SHOWN in lines)
    go.touch()
    lines = terminal.end()

    assert during[-2:] == ["starts", SHOWN], "the bar itself is not shown, too"
    assert terminal.process.returncode == 0
    begin = lines.index("starts")
    assert lines[begin + 1 : begin + 3] == ["Training: 100%|█| 10/10 [00:10<00:00, 1.0it/s]", "saved"]
    assert not any("to step 10" in line for line in lines)


def test_a_begun_line_is_shown_until_it_ends(machine: Machine, tmp_path: Path) -> None:
    """Of a bar that may be anything's, the state itself is shown."""
    go = tmp_path / "go"
    text = program(go, first="\\r 10%|#| 1/10 [00:01<00:09, 1.0it/s]", then="\\n")
    terminal = AtTerminal(machine.command("run", "--name", "live", "python", "-c", text))

    during = terminal.until(lambda lines: " 10%|#| 1/10 [00:01<00:09, 1.0it/s]" in lines)
    go.touch()
    lines = terminal.end()

    assert during[-2:] == ["starts", " 10%|#| 1/10 [00:01<00:09, 1.0it/s]"]
    assert lines.count(" 10%|#| 1/10 [00:01<00:09, 1.0it/s]") == 1


def test_an_interrupt_leaves_a_clean_terminal(machine: Machine, tmp_path: Path) -> None:
    words = ["run", "--delete-on-interrupt", "--name", "live", "python", "-c", program(tmp_path / "go")]
    terminal = AtTerminal(machine.command(*words))

    terminal.until(lambda lines: SHOWN in lines)
    terminal.process.send_signal(signal.SIGINT)
    lines = terminal.end()

    assert terminal.process.returncode == 130
    assert not any("to step 10" in line for line in lines)
    assert lines[lines.index("starts") :] == ["starts", BAR, ""], "the last that was written stays"
    assert "── default/live was deleted: interrupted" in terminal.shown, "nothing of the line is behind it"


@pytest.mark.parametrize(("words", "environment"), [(["--no-progress"], {}), ([], {"TERM": "dumb"})])
def test_without_progress_a_bar_overwrites_itself(
    machine: Machine, tmp_path: Path, words: list[str], environment: dict[str, str]
) -> None:
    go = tmp_path / "go"
    go.touch()
    settings = [f"{name}={value}" for name, value in environment.items()]
    terminal = AtTerminal(
        ["env", *settings, *machine.command("run", *words, "--name", "bar", "python", "-c", program(go))]
    )

    lines = terminal.end()

    assert "to step" not in terminal.sent.decode()
    assert lines[lines.index("starts") + 1].startswith("Training: 100%")


def test_a_pattern_of_the_user_is_read_and_follow_has_it_too(machine: Machine, tmp_path: Path) -> None:
    go = tmp_path / "go"
    pattern = r"update (?P<step>\d+) of (?P<total>\d+), L=(?P<loss>[\d.]+)"
    text = program(go, first="update 3 of 4, L=0.25\\n")
    machine.ptjob("submit", "--name", "live", "--image", "none", "python", "-c", text)
    terminal = AtTerminal(machine.command("follow", "live", "--progress", pattern))

    during = terminal.until(lambda lines: "step 3/4 (75%) · loss 0.25" in lines)
    go.touch()
    terminal.end()

    assert during[-2:] == ["update 3 of 4, L=0.25", "step 3/4 (75%) · loss 0.25"]


TEXTS = {
    "nothing": (None, ""),
    "all": (
        Progress(step=40, total=938, epoch=3, epochs=12, rate=12.34, eta=72.8, metrics={"loss": 0.31251}),
        "epoch 3/12 · step 40/938 (4%) · 12.3 steps/s · 0:01:13 to step 938 · loss 0.3125",
    ),
    "slow": (Progress(step=4, rate=0.125), "step 4 · 8 s/step"),
    "a fraction of an epoch": (Progress(epoch=0.25, metrics={"loss": 2.0}), "epoch 0.25 · loss 2"),
}


@each_row(("progress", "text"), TEXTS.values())
def test_a_state_is_shown_in_one_line(progress: Progress | None, text: str) -> None:
    assert progress_text(progress) == text
