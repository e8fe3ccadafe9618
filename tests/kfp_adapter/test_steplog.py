"""Tests of a step's output: log lines are unchanged, notices are marked, secrets are masked."""

from __future__ import annotations

import asyncio
import io
from dataclasses import replace

from ptjob_provider.core.logs import LogCursor, LogLine
from ptjob_provider.kfp.steplog import Masking, StepLog
from rows import each_row


def line(text: str, *, continues: bool = False, notice: bool = False) -> LogLine:
    """Return a line of rank 0."""
    at = "2026-11-20T10:00:00Z"
    cursor = LogCursor(pod_uid="u", container="pytorch", restart_count=0, timestamp=at, ordinal=0)
    return LogLine(text=text, timestamp=at, cursor=cursor, continues=continues, notice=notice)


def test_lines_of_the_program_and_our_sentences_are_printed_apart() -> None:
    """The pieces of a long line are joined; a notice always starts a new line."""
    stream = io.StringIO()
    log = StepLog(Masking(["canary"]), stream)

    log.line(line("loss=", continues=True))
    log.line(line("0.5"))
    log.line(line("half a l", continues=True))
    log.notice("the job waits")
    log.line(line("the log was cut", notice=True))
    log.line(line("half", continues=True))
    log.failure("failed: canary\nlast lines")

    assert stream.getvalue().splitlines() == [
        "loss=0.5",
        "half a l",
        "── the job waits",
        "── the log was cut",
        "half",
        "failed: ***",
        "last lines",
    ]


@each_row(
    ("secrets", "text", "masked"),
    [
        (["canary"], "a canary, canary", "a ***, ***"),
        (["can", ""], "can", "can"),
        (["canary", "canary-long"], "canary-long canary", "*** ***"),
        (["BEGIN\nabcdef\nEND"], "line abcdef", "line ***"),
    ],
)
def test_known_secrets_are_masked(secrets: list[str], text: str, masked: str) -> None:
    """Each line of a multi-line secret is masked, too; values that are too short to be secrets are not."""
    masking = Masking(secrets[:1])
    masking.learn(secrets[1:])  # a step learns more secrets once its job is known

    assert masking(text) == masked


@each_row("cut", range(1, 12))
def test_a_secret_in_two_pieces_of_a_long_line_is_masked(cut: int) -> None:
    """What may be the beginning of a secret is printed with the next piece."""
    stream = io.StringIO()
    log = StepLog(Masking(["canary", "long-canary"]), stream)
    text = "long-canary"

    log.line(line(f"a canary, {text[:cut]}", continues=True))
    log.line(line(text[cut:], continues=True))
    log.line(line("canar", continues=True))
    log.line(line("y b"))
    log.line(line("the canar", continues=True))
    log.notice("the job waits")

    assert stream.getvalue().splitlines() == ["a ***, ****** b", "the canar", "── the job waits"]


def test_few_states_of_a_progress_bar_are_printed_each_on_a_line_of_its_own() -> None:
    """The pod's own log shows a line only when it has ended."""
    stream = io.StringIO()
    log = StepLog(Masking(["canary"]), stream)

    for percent in range(99):
        log.line(line(f"\r{percent}% canary", continues=True))
    log.notice("the job waits")
    log.line(line("\r100%"))
    log.line(line("done"))

    assert stream.getvalue().splitlines() == ["0% ***", "98% ***", "── the job waits", "100%", "done"]


def at(second: int) -> str:
    return f"2026-11-20T10:{second // 60:02}:{second % 60:02}Z"


def told_after(*lines: tuple[int, str]) -> list[str]:
    """Return what is printed beside lines that are written at these seconds."""
    stream, seconds = io.StringIO(), [0]
    log = StepLog(Masking(["canary"]), stream, clock=lambda: seconds[0])
    for seconds[0], text in lines:
        written = replace(line(text), timestamp=at(seconds[0]))
        log.line(written)
        log.state.take(written)
        asyncio.run(log.room())
    return [each for each in stream.getvalue().splitlines() if each.startswith("──")]


def test_the_time_left_is_printed_once_a_minute_at_most() -> None:
    """Only after a line that says how far the training is."""
    lines = [(second, f"step {second}/1000 loss: {second / 8}") for second in range(200)]

    printed = told_after(*lines, (900, "saved"), (999, "step 999/1000 loss: 1"))

    assert printed == [
        "── step 60/1000 (6%) · 1 steps/s · 0:15:40 to step 1000 · loss 7.5",
        "── step 120/1000 (12%) · 1 steps/s · 0:14:40 to step 1000 · loss 15",
        "── step 180/1000 (18%) · 1 steps/s · 0:13:40 to step 1000 · loss 22.5",
        "── step 999/1000 (100%) · 1 steps/s · 0:00:01 to step 1000 · loss 1",
    ]


@each_row(
    "text",
    ["Training: 5%|#| {n}/1000 [01:00<10:00, 1.0it/s]", "step {n} loss: 0.5", "loss: 0.5", "epoch {n}/1000 loss: 0.5"],
)
def test_what_a_line_says_itself_is_not_printed_again(text: str) -> None:
    """A bar has the time left; without a total, nobody knows it."""
    printed = told_after(*((second, text.format(n=second)) for second in range(0, 600, 10)))

    assert printed == []
