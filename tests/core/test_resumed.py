from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ptjob_provider.core.outputs.resumed import HOW_TO, Steps, no_progress, sentence
from rows import each_row

FIRST = Steps(attempt=1, first=1, last=837, total=1000, rate=37 / 130)
SPARSE = Steps(attempt=1, first=10, last=830, total=1000)
"""A program that writes every tenth step."""


def said(first: int | None, *before: Steps, step: int | None = 800, **steps: Any) -> str:
    return sentence(Steps(attempt=len(before) + 1, first=first, total=1000, **steps), before, step=step)


@each_row(
    ("text", "expected"),
    [
        (said(801, FIRST), "attempt 2 resumed at step 800 of 1,000; 37 steps (2 min 10 s) repeated"),
        (said(800, FIRST, step=800), "attempt 2 resumed at step 800 of 1,000; 37 steps (2 min 10 s) repeated"),
        (said(810, SPARSE), "attempt 2 resumed at step 800 of 1,000; 30 steps repeated"),
        (said(831, FIRST, step=836), ""),
        (said(838, FIRST, step=837), "attempt 2 resumed at step 837 of 1,000; no step repeated"),
        (said(837, FIRST, step=836), "attempt 2 resumed at step 836 of 1,000; 1 step (4 s) repeated"),
        (
            said(801, FIRST, Steps(attempt=2, first=700, last=900, rate=0.02)),
            "attempt 3 resumed at step 800 of 1,000; 100 steps (1 h 23 min) repeated",
        ),
    ],
)
def test_an_attempt_that_goes_on_says_where_and_what_it_repeats(text: str, expected: str) -> None:
    assert text == expected


@each_row(("first", "before"), [(0, FIRST), (1, FIRST), (10, SPARSE)])
def test_an_attempt_that_begins_anew_beside_a_checkpoint_gets_advice_to_resume(first: int, before: Steps) -> None:
    text = said(first, before)

    assert text.startswith("attempt 2 began at step 0 although a checkpoint of step 800 was there")
    assert HOW_TO in text


@each_row(
    "text",
    [
        said(None, FIRST),  # it has written no step yet
        said(801),  # the first attempt
        said(801, FIRST, step=None),  # without a checkpoint, or one whose name has no step
        said(801, Steps(attempt=1)),  # the attempt before wrote no step
        said(1, Steps(attempt=1, first=1, last=100, total=100)),  # steps of each epoch
        said(400, FIRST),  # from something else
        said(850, FIRST),  # the same
        said(5, FIRST, step=1),  # the same, near the beginning
    ],
)
def test_an_attempt_with_uncertain_steps_gets_no_sentence(text: str) -> None:
    assert text == ""


@given(
    step=st.integers(1, 10_000),
    interval=st.integers(1, 500),
    past=st.integers(0, 2_000),
    resumes=st.booleans(),
)
def test_a_sentence_agrees_with_the_programs_own_steps(step: int, interval: int, past: int, resumes: bool) -> None:  # noqa: FBT001
    """A program that writes every n-th step, is killed after a checkpoint, and then resumes or does not."""
    began, killed = (step if resumes else 0), step + past

    def written(after: int, until: int) -> tuple[int, int]:
        first = (after // interval + 1) * interval
        return first, max(first, until // interval * interval)

    first, last = written(0, killed)
    text = sentence(
        Steps(attempt=2, first=written(began, began + interval)[0]),
        [Steps(attempt=1, first=first, last=last)],
        step=step,
    )

    assert not ("resumed" in text and not resumes)
    assert not ("began at step 0" in text and resumes)


def reached(*steps: int | None) -> list[Steps]:
    """Return attempts that came so far; None: without steps."""
    return [
        Steps(attempt=number, first=None if step is None else 0, last=step, in_order=True)
        for number, step in enumerate(steps, 1)
    ]


@each_row(
    ("steps", "limit", "expected"),
    [
        ((837, 820, 837), 2, "2 attempts in a row reached no step beyond 837, to which attempt 1 had come"),
        ((700, 1837, None, 1837), 1, "the last attempt reached no step beyond 1,837, to which attempt 2 had come"),
        ((837, 820), 2, ""),
    ],
)
def test_the_last_attempt_says_how_far_all_came(steps: tuple[int | None, ...], limit: int, expected: str) -> None:
    *before, now = reached(*steps)

    allows = f", and no_progress_limit={limit} allows no further attempt"
    assert no_progress(now, before, limit=limit) == (expected and expected + allows)


@each_row("place", [0, 1, 2])
def test_attempts_whose_steps_were_not_in_order_are_not_compared(place: int) -> None:
    """They may be counted in each epoch: the second half of an epoch is no further than the first epoch then."""
    attempts = reached(837, 820, 837)
    attempts[place] = Steps(attempt=place + 1, first=0, last=837)

    assert no_progress(attempts[2], attempts[:2], limit=1) == ""


@given(steps=st.lists(st.none() | st.integers(0, 6), min_size=1, max_size=9), limit=st.integers(0, 3))
def test_an_attempt_is_the_last_if_it_and_so_many_known_ones_reached_no_new_step(
    steps: list[int | None], limit: int
) -> None:
    *before, now = reached(*steps)
    known = [step for step in steps if step is not None]
    enough = steps[-1] is not None and 0 < limit < len(known)

    is_last = enough and max(known[-limit:]) <= max(known[:-limit])

    assert bool(no_progress(now, before, limit=limit)) is is_last
