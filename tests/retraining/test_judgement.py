"""The judgement sees each way in which a batch can go wrong; a judge that sees nothing would let the soak pass."""

from __future__ import annotations

from typing import Any

import pytest

from retraining.judgement import Training, faults

FILES = {"a.txt": "1" * 64, "b.txt": "2" * 64}
DROPPED = dict.fromkeys(("b1", "b2", "b3"), FILES)


def training(number: int, new: str, read: str, **more: Any) -> Training:
    fields: dict[str, Any] = {"run_id": f"run-{number}", "succeeded": True, **more}
    return Training(number=number, new=frozenset(new.split()), read=dict.fromkeys(read.split(), FILES), **fields)


GOOD = [
    training(0, "b1", "b1"),
    training(1, "b2", "b1 b2", succeeded=False, fate="fail after the model"),
    training(2, "b2 b3", "b1 b2 b3"),
]


def test_a_series_in_which_each_batch_is_new_once_is_good() -> None:
    """A failed training gives its batches back; the next one has them as new."""
    assert faults(DROPPED, GOOD) == []
    assert faults(DROPPED, reversed(GOOD)) == []


WRONG = {
    "lost": ([GOOD[0], training(2, "b2", "b1 b2")], "b3 was lost: it was new in no successful training"),
    "new in a failed one only": (
        [GOOD[0], training(1, "b2 b3", "b1 b2 b3", succeeded=False, fate="fail before the model")],
        "b2 was lost: it was new in no successful training",
    ),
    "doubled": ([*GOOD, training(3, "b1", "b1 b2 b3")], "b1 was new more than once: in the trainings [0, 3]"),
    "missing later": ([*GOOD, training(3, "", "b1 b3")], "b2, new in training 2, is missing in [3]"),
    "read before": (
        [training(0, "b1", "b1 b3"), *GOOD[1:]],
        "b3 was read by the trainings [0] before it was new in 2",
    ),
    "told and not read": (
        [GOOD[0], training(2, "b2 b3", "b1 b2")],
        "training 2 was told that b3 is new and has not read it",
    ),
    "unknown": ([*GOOD, training(3, "", "b1 b2 b3 b9")], "training 3 has read b9, which nobody dropped"),
    "half": (
        [*GOOD, training(3, "", "b1 b2", succeeded=True), training(4, "", "b1 b2 b3")],
        "b3, new in training 2, is missing in [3]",
    ),
    "a failure that succeeded": (
        [*GOOD, training(3, "", "b1 b2 b3", fate="fail after the model")],
        "training 3 succeeded and was to fail after the model",
    ),
    "twice in a run": (
        [*GOOD, training(3, "", "b1 b2 b3", run_id="run-2")],
        "run run-2 has 2 successful trainings",
    ),
}


@pytest.mark.parametrize(("trainings", "said"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said(trainings: list[Training], said: str) -> None:
    """With the batch and the trainings."""
    assert said in faults(DROPPED, trainings)


def test_a_batch_that_was_read_half_written_is_seen() -> None:
    """One of its files is not there, or is another one."""
    short = training(3, "", "b1 b2")
    half = Training(number=3, run_id="r", succeeded=True, read={**short.read, "b3": {"a.txt": "1" * 64}})
    other = Training(number=3, run_id="r", succeeded=True, read={**short.read, "b3": {**FILES, "b.txt": "3" * 64}})

    for each in (half, other):
        assert faults(DROPPED, [*GOOD, each]) == ["training 3 has read other files of b3 than were dropped"]
