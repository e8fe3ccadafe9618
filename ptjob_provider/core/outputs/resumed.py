"""Say where an attempt went on, and whether attempts get any further, by the steps in their logs. Pure.

Wrong is worse than nothing: the steps of a log may be counted in each epoch, or written only now and then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HOW_TO = "docs/how-to/survive-preemption.md"

_MOST = 10**12


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Steps of one attempt as its log has them; None where it has none.

    Attributes:
        attempt: number of the attempt.
        first: the first step.
        last: the last step.
        total: the number that the steps count to.
        rate: steps per second.
        in_order: whether its steps only rose, below their total, as those of a whole training do.
    """

    attempt: int
    first: int | None = None
    last: int | None = None
    total: int | None = None
    rate: float | None = None
    in_order: bool = False

    @classmethod
    def of(cls, summary: Mapping[str, Any]) -> Self:
        """Return the steps in an attempt's summary, which somebody may have edited."""
        first, last, rate = (summary.get(name) for name in ("first_step", "last_step", "rate"))
        return cls(
            attempt=summary["attempt"],
            first=first if isinstance(first, int) and 0 <= first < _MOST else None,
            last=last if isinstance(last, int) and 0 <= last < _MOST else None,
            rate=rate if isinstance(rate, float) and 1 / _MOST < rate < _MOST else None,
            in_order=summary.get("in_order") is True,
        )


def sentence(now: Steps, before: Sequence[Steps], *, step: int | None) -> str:
    """Return where the attempt went on, and what it repeats; "" where that is not known for sure.

    Args:
        now: the attempt, so far.
        before: the attempts since the task's last clear, oldest first; the first of them began at step 0.
        step: step of the checkpoint that the attempt was given; None if it is unknown, or if there was none.
    """
    if step is None or not before or now.first is None or before[0].first is None:
        return ""
    last = before[-1].last
    if last is None or last < step:  # counted in each epoch, or not up to the checkpoint
        return ""
    interval = max(before[0].first, 1)  # a program that writes every tenth step begins with 10
    if step <= interval:
        return ""
    if now.first <= interval:
        there = f"although a checkpoint of step {step:,} was there"
        return f"attempt {now.attempt} began at step 0 {there}: the program does not resume (how to: {HOW_TO})"
    if not step <= now.first <= step + interval:
        return ""
    of = f" of {now.total:,}" if now.total else ""
    return f"attempt {now.attempt} resumed at step {step:,}{of}; {_repeated(last - step, before[-1].rate)}"


def no_progress(now: Steps, before: Sequence[Steps], *, limit: int) -> str:
    """Return why no attempt follows one that has failed: it and others before it reached no new step; "" if one may.

    Attempts without steps do not count. Nothing is decided if the steps of any attempt were not in order, because they
    may be counted in each epoch.

    Args:
        now: the attempt.
        before: the attempts since the task's last clear, oldest first.
        limit: number of such attempts in a row; 0 for no limit.
    """
    known = [each for each in (*before, now) if each.first is not None]
    if now.first is None or not all(each.in_order for each in known):
        return ""
    furthest, count = known[0], 0
    for each in known[1:]:
        furthest, count = (each, 0) if (each.last or 0) > (furthest.last or 0) else (furthest, count + 1)
    if not 0 < limit <= count:
        return ""
    attempts = f"{count} attempts in a row" if count > 1 else "the last attempt"
    reached = f"reached no step beyond {furthest.last or 0:,}, to which attempt {furthest.attempt} had come"
    return f"{attempts} {reached}, and no_progress_limit={limit} allows no further attempt"


def _repeated(steps: int, rate: float | None) -> str:
    if steps == 0:
        return "no step repeated"
    took = f" ({_duration(steps / rate)})" if rate else ""
    return f"{steps:,} step{'s' if steps > 1 else ''}{took} repeated"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [(hours, "h"), (minutes, "min"), (rest, "s")]
    shown = [f"{count} {unit}" for count, unit in parts if count]
    return " ".join(shown[:2]) or "less than a second"
