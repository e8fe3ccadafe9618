"""Tests of a step's output: log lines are unchanged, notices are marked, secrets are masked."""

from __future__ import annotations

import io

from ptjob_provider.core.logs import LogCursor, LogLine
from ptjob_provider.kfp.steplog import Masking, StepLog
from rows import each_row


def line(text: str, *, continues: bool = False, notice: bool = False) -> LogLine:
    """Return a line of rank 0."""
    at = "2026-11-20T10:00:00Z"
    cursor = LogCursor(pod_uid="u", container="pytorch", restart_count=0, timestamp=at, ordinal=0)
    return LogLine(text=text, timestamp=at, cursor=cursor, continues=continues, notice=notice)


def test_lines_and_sentences_are_told_apart() -> None:
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
    ("secrets", "text", "told"),
    [
        (["canary"], "a canary, canary", "a ***, ***"),
        (["can", ""], "can", "can"),
        (["canary", "canary-long"], "canary-long canary", "*** ***"),
        (["BEGIN\nabcdef\nEND"], "line abcdef", "line ***"),
    ],
)
def test_known_secrets_are_masked(secrets: list[str], text: str, told: str) -> None:
    """Each line of a multi-line secret is masked, too; values that are too short to be secrets are not."""
    masking = Masking(secrets[:1])
    masking.learn(secrets[1:])  # a step learns more secrets once its job is known

    assert masking(text) == told


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
