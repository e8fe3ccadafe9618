"""Tests of reading a training's progress from its log: on lines of public logs, and guard by guard."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.logs import LogCursor, LogLine, nanoseconds
from ptjob_provider.core.training_progress import (
    MAX_LINE,
    MAX_METRICS,
    LinePattern,
    Progress,
    ProgressReader,
    Reading,
    progress_text,
    read_line,
)
from rows import each_row

CORPUS = Path(__file__).parent / "progress_corpus"
RUNS = Path(__file__).parents[1] / "data" / "progress_runs.jsonl"
BEGIN = datetime(2026, 11, 20, 10, tzinfo=UTC)
CURSOR = LogCursor(pod_uid="p", container="c", restart_count=0, timestamp="2026-11-20T10:00:00Z", ordinal=0)


def stamp(second: float) -> str:
    return f"2026-11-20T10:{int(second) // 60:02}:{second % 60:06.3f}Z"


def line(text: str, second: float = 0, **more: Any) -> LogLine:
    return LogLine(text=text, timestamp=stamp(second), **{"cursor": CURSOR, **more})


def after(*texts: str, pattern: LinePattern | None = None) -> Progress | None:
    """Return the state after these lines, one a second."""
    reader = ProgressReader(pattern)
    for second, text in enumerate(texts):
        reader.feed(line(text, second))
    return reader.progress


def state_of(*lines: LogLine | str) -> Progress:
    """Return the state after these lines, or after these texts, one a second."""
    reader, progress = ProgressReader(), None
    for second, each in enumerate(lines):
        progress = reader.feed(each if isinstance(each, LogLine) else line(each, second))
    assert progress is not None
    return progress


def steps(*texts: str) -> list[int | None]:
    """Return the step after each of these lines."""
    return [(progress.step if (progress := after(*texts[: end + 1])) else None) for end in range(len(texts))]


def said(reading: Reading | None) -> dict[str, float]:
    """Return the fields that a line said, as the corpus names them."""
    if reading is None:
        return {}
    names = ("step", "total", "epoch", "epochs")
    found = {name: getattr(reading, name) for name in names if getattr(reading, name) is not None}
    loss = Progress(metrics=reading.metrics).loss
    return found if loss is None else {**found, "loss": loss}


@pytest.mark.parametrize("half", ["tuned", "held_back"])
def test_fields_of_public_logs_are_right_or_not_said(half: str) -> None:
    """The patterns were written with one half of these logs; docs/reference/progress.md has these numbers."""
    right = told = written = 0
    for log in map(json.loads, (CORPUS / f"{half}.jsonl").read_text().splitlines()):
        reader = ProgressReader()
        for line in log["lines"]:
            reading = reader.take(line["text"], stamp(0))
            if line.get("judged", True):
                found = {name: value for name, value in said(reading).items() if name not in line.get("open", ())}
                right += sum(line["expected"].get(name) == value for name, value in found.items())
                told, written = told + len(found), written + len(line["expected"])
    print(f"{half}: precision {right} of {told}, recall {right} of {written}")  # noqa: T201 - for the page: pytest -rP

    assert right / told >= 0.995
    assert right / written >= 0.90


FORMS: dict[str, tuple[str, dict[str, float]]] = {
    "tqdm": ("train: 10%|█  | 100/1000 [00:10<01:30, 10.0it/s, loss=0.5]", {"step": 100, "total": 1000, "loss": 0.5}),
    "seconds per step": ("Training:  5%|▌ | 5/100 [00:20<06:20,  4.00s/it]", {"step": 5, "total": 100}),
    "Trainer": ("{'loss': 0.5, 'grad_norm': 2.0, 'learning_rate': 5e-05, 'epoch': 1.5}", {"epoch": 1.5, "loss": 0.5}),
    "Lightning": (
        "Epoch 3:  50%|█████ | 5/10 [00:01<00:01, 5.00it/s, v_num=0, train_loss_step=0.25]",
        {"step": 5, "total": 10, "epoch": 3, "loss": 0.25},
    ),
    "torchtune": (
        "1|57|Loss: 1.5:  57%|█▋| 58/101 [15:52<11:00, 15.36s/it]",
        {"step": 58, "total": 101, "epoch": 1, "loss": 1.5},
    ),
    "DeepSpeed": ("[INFO] [logging.py:96:log_dist] [Rank 0] step=35, skipped=0, lr=[2e-06], mom=[0.9]", {"step": 35}),
    "Megatron": (
        " iteration  100/  500 | elapsed time per iteration (ms): 500.0 | lm loss: 1.8E+00 | skipped iterations:  0 |",
        {"step": 100, "total": 500, "loss": 1.8},
    ),
    "nanoGPT": ("iter 10: loss 2.3, time 12ms", {"step": 10, "loss": 2.3}),
    "ultralytics": (
        "   70/1000      6.73G      1.081     0.4706      1.084     10    640: 100%|█| 16/16 [00:05<00:00,  2.78it/s]",
        {"step": 16, "total": 16, "epoch": 70, "epochs": 1000},
    ),
    "newer ultralytics": (
        "    1/10      2.5G      1.0      0.4      1.0       10        640: 50% ━━━━━━────── 8/16 2.8it/s 2.9s<2.9s",
        {"step": 8, "total": 16, "epoch": 1, "epochs": 10},
    ),
    "words and a loss": ("step 15/45 loss: 0.25", {"step": 15, "total": 45, "loss": 0.25}),
    "epochs": ("epoch 3/12 loss=0.3", {"epoch": 3, "epochs": 12, "loss": 0.3}),
    "epoch and step": (
        "Epoch [1/5], Step [100/600], Loss: 0.5",
        {"step": 100, "total": 600, "epoch": 1, "epochs": 5, "loss": 0.5},
    ),
    "samples": ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.5", {"step": 640, "total": 60000, "epoch": 1, "loss": 2.5}),
    "JSON": (
        '{"step": 7, "total_steps": 9, "epochs": 3, "loss": 0.5}',
        {"step": 7, "total": 9, "epochs": 3, "loss": 0.5},
    ),
    "numbers as text": ('{"epoch": "2", "loss": "0.5", "name": "x", "ok": true}', {"epoch": 2, "loss": 0.5}),
    "loss that is no number": ("step 5/9 loss: nan", {"step": 5, "total": 9}),
    "no rate yet": ("Epoch 0:   0%|  | 0/18 [00:00<?, ?it/s]", {"step": 0, "total": 18, "epoch": 0}),
}


@each_row(("text", "expected"), FORMS.values())
def test_a_form_is_read(text: str, expected: dict[str, float]) -> None:
    assert said(read_line(text)) == expected


OTHERS = (
    "Map:  45%|████ | 4500/10000 [00:10<00:12, 450.00 examples/s]",
    "Loading checkpoint shards: 100%|██████████| 2/2 [00:02<00:00,  1.24s/it]",
    "Validation DataLoader 0:  46%|████ | 73/157 [00:02<00:02, 37.48it/s]",
    "Sanity Checking DataLoader 0: 100%|██| 2/2 [00:00<00:00,  2.76it/s]",
    "Tokenizing train dataset:  12%|█ | 120/1000 [00:01<00:08, 110.0it/s]",
    "model.safetensors:  12%|█ | 587M/4.97G [00:05<00:37, 117MB/s]",
    "Epochs:  20%|██ | 2/10 [00:10<00:40, 5.0s/it]",
    "train:  12%|█ | 5/40 [00:05<00:37, 1.0files/s]",
    "100%|██████████| 7/7 [00:00<00:00, 1809.34it/s]",
    "Training:  12%|█ | 5/4",
    "Training:  12%|█ | 5/",
    "{'eval_loss': 1.2, 'eval_runtime': 49.1, 'epoch': 0.44}",
    '{"batch_size": 8, "epochs": 3, "step": 4}',
    '{"step": 1, "iter": 2, "loss": 0.5}',
    "{broken: 1, 'step': x}",
    "iter 76 step 38: loss 10.8",
    "step 3/10 of 20, batch 3/20, loss: 1.0",
    "Val epoch 0 has acc 0.249 and loss 1.386",
    "Epoch 3: test accuracy: 0.5",
    "Downloading step 3/7",
    "warmup_step:1/20",
    "Total optimization steps = 196",
    "step: 1172.13 | forward: 652.41",
    "epoch 3 begins",
    "32/32 [==============================] - 0s 2ms/step - loss: 0.5",
    "Step 3/5 : COPY train.py /app",
    "plain words",
    "",
)


@pytest.mark.parametrize("text", OTHERS)
def test_a_line_of_something_else_is_not_the_trainings_step(text: str) -> None:
    assert after(text) is None


def test_a_line_with_two_epochs_says_none() -> None:
    assert said(read_line("epoch 1 of run, epoch 2, step 5, loss: 0.5")) == {"step": 5, "loss": 0.5}


def test_a_bar_without_description_is_the_trainings_when_a_loss_is_written_between_its_states() -> None:
    """Hugging Face's Trainer has no description on its bar, and neither has the bar of its evaluation."""
    bar = " 10%|█ | {}/500 [00:10<01:30, 10.0it/s]"
    evaluation = " 50%|█ | {}/20 [00:01<00:01, 10.0it/s]"
    loss = "{'loss': 0.5, 'learning_rate': 5e-05, 'epoch': 0.1}"

    assert steps(bar.format(9), loss, bar.format(10), evaluation.format(10), bar.format(11)) == [None, 9, 10, 10, 11]
    assert steps(evaluation.format(20), loss) == [None, None], "a bar that has ended"
    assert steps(evaluation.format(10), "epoch 1 lr: 0.1", loss) == [None, None, None], "not its loss"


def test_a_bar_without_description_that_shows_a_loss_is_the_trainings() -> None:
    assert steps(" 10%|█ | 50/500 [00:10<01:30, 10.0it/s, loss=0.5]") == [50]


def test_a_bar_of_keras_is_the_trainings_once_in_an_epoch() -> None:
    """`evaluate` writes the same bar, but no line `Epoch 1/2` before it."""
    bar = "{}/32 [=====>........................] - 4s 100ms/step - loss: 0.5"

    assert steps(bar.format(9), "Epoch 1/2", bar.format(5), bar.format(32), bar.format(6)) == [None, None, 5, 32, 32]
    state = state_of("Epoch 1/2", bar.format(5))
    assert (state.step, state.total, state.epoch, state.epochs, state.source) == (5, 32, 1, 2, "bar")


def test_another_bar_with_another_total_is_not_the_training() -> None:
    train, other = "Training:  5%|▌ | {}/100 [00:20<06:20, 4.0it/s]", "Steps:  5%|▌ | {}/30 [00:20<06:20, 4.0it/s]"

    assert steps(train.format(5), other.format(6), train.format(7)) == [5, 5, 7]
    assert steps(train.format(100), other.format(6)) == [100, 6], "the training before has ended"


def test_an_epoch_may_have_another_number_of_steps() -> None:
    assert steps("Epoch 0:  50%|█ | 5/10 [00:01<00:01, 5.00it/s]", "Epoch 1:  8%|█ | 1/12 [00:01<00:01, 5.00it/s]") == [
        5,
        1,
    ]


def test_a_step_goes_back_with_a_new_epoch_or_when_three_lines_say_so() -> None:
    """Torchrun starts the ranks again in the same container; one line that says less may be something else."""
    said = "step {} loss: 0.5"

    assert steps(*map(said.format, (50, 40, 51))) == [50, 50, 51]
    assert steps(*map(said.format, (50, 40, 41, 42, 43))) == [50, 50, 50, 42, 43]
    assert steps(*map(said.format, (50, 40, 39, 40, 41))) == [50, 50, 50, 50, 41]
    assert steps("epoch 1, step 50, loss: 1", "epoch 2, step 1, loss: 1") == [50, 1]


def test_the_best_source_of_steps_is_believed() -> None:
    bar, words = "Training:  5%|▌ | {}/100 [00:20<06:20, 4.0it/s]", "step {} loss: 0.5"
    state = state_of(bar.format(5), words.format(7))

    assert (state.step, state.source) == (5, "bar")
    assert steps(words.format(7), bar.format(5), words.format(8)) == [7, 5, 5]


def test_a_heading_of_an_epoch_ends_the_steps_of_the_last() -> None:
    assert steps("Epoch 1/2", "step 5/9 loss: 1", "Epoch 2/2") == [None, 5, None]


def test_a_container_that_was_started_again_begins_a_new_training() -> None:
    again = line("step 1 loss: 1", 1, cursor=replace(CURSOR, restart_count=1))

    assert state_of(line("step 50 loss: 1"), again).step == 1


def test_the_last_state_of_an_overwritten_line_counts_and_notices_do_not() -> None:
    bar = "\rTraining: 5%|▌| 5/100 [00:20<06:20, 4.0it/s]\rTraining: 6%|▌| 6/100 [00:20<06:20, 4.0it/s]\r"

    state = state_of(line(bar), line("step 9/10 loss: 1", notice=True))

    assert (state.step, state.total) == (6, 100)


def test_rate_and_time_left_are_measured_where_no_line_says_them() -> None:
    state = state_of("step 10/100 loss: 1", "step 12/100 loss: 1", "step 14/100 loss: 1")

    assert (state.rate, state.eta) == (2.0, 43.0)


def test_the_time_left_has_pauses_and_not_what_was_before_the_first_step() -> None:
    """A bar's own rate is of its last steps, and a compilation is not repeated."""
    bar = "Training:  5%|▌ | {}/100 [00:20<06:20,  1.00it/s]"

    state = state_of(*(line(bar.format(step), second) for step, second in enumerate((0, 60, 61, 70, 72))))

    assert (state.rate, state.eta) == (1.0, 384.0)


def test_the_time_left_is_measured_by_the_bars_clock_where_its_states_came_late() -> None:
    """Containerd hands over 16 KiB of a line once 20 have been written, with the time of that moment."""
    bar = "Training:  5%|▌ | {}/1500 [{}<04:28,  4.62it/s]"

    state = state_of(line(bar.format(250, "00:50"), 67), line(bar.format(500, "01:40"), 105))

    assert state.eta == 200.0


def test_the_time_left_goes_on_while_lines_have_a_loss_and_no_step() -> None:
    """A node holds back the bar of Hugging Face's Trainer, and not its lines with the loss."""
    bar, loss = "Training:  5%|▌ | {}/100 [00:20<06:20,  1.00it/s]", "{'loss': 0.5, 'epoch': 0.5}"
    lines = [line(bar.format(10)), line(bar.format(20), 10), line(loss, 40)]

    meanwhile, later = state_of(*lines), state_of(*lines, line(loss, 100))

    assert (meanwhile.step, meanwhile.eta, later.eta) == (20, 50.0, 0.0)


def test_the_time_left_after_a_tenth_of_a_run_is_near_the_truth() -> None:
    """Lines of each run's first tenth; docs/reference/progress.md says how they were made, and has these numbers."""
    errors = []
    for run in map(json.loads, RUNS.read_text().splitlines()):
        reader = ProgressReader()
        for second, text in run["lines"]:
            reader.feed(LogLine(text=text, timestamp=f"{BEGIN + timedelta(seconds=second):%FT%T.%fZ}", cursor=CURSOR))
        if reader.progress is not None and reader.progress.eta is not None:
            end = datetime.fromisoformat(reader.progress.at) + timedelta(seconds=reader.progress.eta - run["until"])
            errors.append(abs((end - BEGIN).total_seconds() - run["left"]) / run["left"])
    middle, most = median(errors), quantiles(errors, n=10)[-1]
    print(f"{len(errors)} runs: median {middle:.1%}, 90th percentile {most:.1%}")  # noqa: T201 - for the page: pytest -rP

    assert len(errors) >= 45
    assert middle <= 0.10
    assert most <= 0.25


def test_numbers_behind_a_bar_are_no_metrics() -> None:
    """Lightning writes its last sentence without a line end before it."""
    bar = "Epoch 2: 100%|█████| 80/80 [00:20<00:00,  3.90it/s, lr=[0.1], train_loss=0.5]"

    reading = read_line(bar + "`Trainer.fit` stopped: `max_epochs=3` reached.")

    assert reading is not None
    assert reading.metrics == {"train_loss": 0.5}


def test_the_rate_in_a_line_is_used() -> None:
    assert [getattr(read_line(FORMS[form][0]), "rate", None) for form in ("tqdm", "seconds per step", "epochs")] == [
        10.0,
        0.25,
        None,
    ]


def test_a_state_of_a_long_line_has_the_time_that_its_bar_says() -> None:
    """A node gives all states of a line that has not ended the time of the first ones."""
    bar = "\rEpoch 3:  22%|██▏ | 4/18 [{}<01:02,  4.47s/it]"
    states = [line(bar.format(elapsed), 21, continues=True) for elapsed in ("00:20", "01:30", "00:10")]

    seen = [nanoseconds(state_of(*states[: end + 1]).at) - nanoseconds(stamp(21)) for end in range(3)]

    assert seen == [0, 70_000_000_000, 80_000_000_000]  # the last one is of the next epoch's bar
    assert state_of(*states, line("Epoch 5:  22%|██▏ | 4/18 [05:00<01:02,  4.47s/it]", 110)).at == stamp(110)


def test_the_rate_of_an_epoch_is_not_measured_across_its_beginning() -> None:
    state = state_of(*(f"epoch {epoch}, step {step}/9, loss: 1" for epoch in (1, 2) for step in (1, 2)))

    assert state.rate == 1.0


def test_few_metrics_are_kept_and_the_newest_stay() -> None:
    """A log may name thousands."""
    state = state_of(*(f"step {number} m{number}: 1.0" for number in range(MAX_METRICS + 5)))

    assert list(state.metrics) == [f"m{number}" for number in range(5, MAX_METRICS + 5)]


HOSTILE = (
    "step {n}/1 loss: 1", "step 1/{n} loss: 1", "epoch {n}/{n} loss: 1", "Epoch {n}/{n}", '{{"step": {n}, "loss": 1}}',
    '{{"step": NaN, "loss": 1}}', '{{"step": Infinity, "loss": 1}}', '{{"step": 1e300, "epoch": 1e300, "loss": {n}}}',
    "Training: 1%|#| {n}/{n} [00:00<00:00, {n}it/s]", "Training: 1%|#| 1/9 [00:00<00:00, 0.{z}1it/s]",
    "Training: 1%|#| 1/9 [00:00<00:00, 1.2.3it/s]", "step 1/9 loss: 1e999", "{n}/{n} - 1s - loss: 1",
    "1|1|Loss: 1: 1%|#| 1/{n} [00:00<00:00, 0.{z}1s/it]", "  {n}/{n} 1G 1 1 1 1 64: 1%|#| 1/9 [00:00<00:00, 1it/s]",
)  # fmt: skip


@pytest.mark.parametrize("form", HOSTILE)
def test_no_number_ends_the_reader_or_whoever_shows_it(form: str) -> None:
    """A program may print any; division and multiplication of some is an error in Python."""
    text = form.format(n="9" * 400, z="0" * 310)
    try:
        state, error = after("Epoch 1/2", text, text, "step 2/9 loss: 1"), None
        progress_text(state)
        json.dumps(state.to_dict() if state else None, allow_nan=False)
    except (ArithmeticError, ValueError) as raised:
        error = raised

    assert error is None


def test_a_state_survives_json() -> None:
    state = state_of("epoch 1/3, step 5/9, loss: 0.5")

    assert Progress.from_dict(json.loads(json.dumps(state.to_dict()))) == state


@given(st.lists(st.text(max_size=60) | st.sampled_from([text for text, _ in FORMS.values()]), max_size=6))
def test_no_text_ends_the_reader(texts: list[str]) -> None:
    after(*texts)


def test_the_end_of_a_long_line_is_not_looked_at() -> None:
    assert after(" " * MAX_LINE + "step 5/9 loss: 1") is None


def test_a_pattern_of_the_user_says_what_its_groups_are() -> None:
    pattern = LinePattern(r"\[(?P<epoch>\d+)\.(?P<step>[\d.]+) of (?P<total>\d+)\] L(?P<loss>\S+)(?: P(?P<ppl>\S+))?")

    assert after("step 1/2 loss: 1", "[3.14 of 20] L0.5", pattern=pattern) == Progress(
        step=14, total=20, epoch=3.0, metrics={"loss": 0.5}, at=stamp(1), source="progress="
    )
    assert after("[3.14 of 20] Lnone", pattern=LinePattern("L(?P<loss>[a-z]+)")) is None
    assert after("Lnan", pattern=LinePattern("L(?P<loss>[a-z]+)")) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("(", "is not a regular expression of RE2"),
        (r"(?P<step>\d+)(?=x)", "is not a regular expression of RE2"),
        (r"step \d+", "has no named group"),
        ("(?P<step>x)" + "x" * 500, "511 characters; allowed: 500"),
    ],
)
def test_a_pattern_that_cannot_be_used_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidSpec, match="progress: .*" + why):
        LinePattern(text)


def test_no_pattern_stops_the_process() -> None:
    """Python's `re` would try 2 ** 2000 ways to match this one, and no thread could interrupt it."""
    code = (
        "from ptjob_provider.core.training_progress import LinePattern\n"
        "print(LinePattern('(?P<step>(a+)+)$').read('a' * 1999 + '!'))\n"
        "print(LinePattern('(?P<step>.*.*.*.*.*.*)=').read('a' * 2000))\n"
    )
    try:
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        ended = None

    assert ended is not None, "a pattern held the process"
    assert ended.stdout.split() == ["None", "None"], ended.stderr


def test_no_line_takes_longer_than_in_proportion_to_its_length() -> None:
    """Compared with another line of the same length, in CPU time: this one took 25 times as much."""

    def seconds(text: str) -> float:
        began = time.process_time()
        read_line(text)
        return time.process_time() - began

    lines = ("loss " + "a." * 997, "loss " + "a " * 997)
    dots, words = (min(seconds(line) for _ in range(5)) for line in lines)

    assert dots < 8 * words


def test_an_object_that_is_nested_too_deep_ends_no_reader() -> None:
    """Python's JSON gives up at a thousand levels."""
    assert read_line('{"step": 7, "loss": 0.5, "x": ' + "[" * 1900 + "}") == read_line(
        '{"step": 7, "loss": 0.5, "x": [}'
    )
