"""Checks that the tests of `tests/promises.md` were run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from steps import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from steps import Step

_ROW = re.compile(r"^\| (?P<promise>.+?) \| `(?P<test>tests/\S+)` \| (?P<group>[\w-]*) *\|$", re.MULTILINE)


def unproved(steps: Iterable[Step], groups: Sequence[str]) -> list[str]:
    """Return a line for each promise whose test did not run in these steps, or was skipped.

    Args:
        steps: that have ended.
        groups: whose tests were run; "" stands for those of no group.
    """
    outcomes = [(each["test"], each["outcome"]) for step in steps for each in step.times if "test" in each]
    lines = []
    for row in _ROW.finditer((ROOT / "tests" / "promises.md").read_text()):
        if row["group"] not in groups:
            continue
        seen = {outcome for test, outcome in outcomes if test == row["test"] or test.startswith(f"{row['test']}[")}
        if not seen or "skipped" in seen:
            lines.append(f"UNPROVED {row['promise']}: {row['test']} was {'skipped' if seen else 'not run'}")
    return lines
