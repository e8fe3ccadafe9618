"""Read `tests/promises.md`: each promise, the test that proves it on real infrastructure, and that test's group."""

from __future__ import annotations

import re
import tomllib
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from steps import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from steps import Step

_TABLE = ROOT / "tests" / "promises.md"
_HEAD = ("| promise | test | group |", "|---|---|---|")
_ROW = re.compile(r"^\| (?P<promise>[^|]+?) \| `(?P<test>tests/[^\s|]+)` \| (?P<group>[\w-]*) *\|$", re.MULTILINE)

_MOST, _LONGEST = 3, timedelta(days=7)


class Promise(NamedTuple):
    """One row of the table.

    Attributes:
        promise: the promise, as a sentence.
        test: the id of the test that proves it, with all its cases.
        group: the group that runs the test; empty for `make test`.
    """

    promise: str
    test: str
    group: str

    def is_proved_by(self, test: str) -> bool:
        """Return whether this id is that of the promise's test, or of one of its cases."""
        return test == self.test or test.startswith(f"{self.test}[")


def promises() -> list[Promise]:
    """Return the rows of the table."""
    return [Promise(**row.groupdict()) for row in _ROW.finditer(_TABLE.read_text())]


def malformed(groups: Iterable[str]) -> list[str]:
    """Return a line for each row of the table that cannot be read or names none of these groups."""
    rows = [line for line in _TABLE.read_text().splitlines() if "|" in line and line not in _HEAD]
    lines = [f"PROMISE cannot be read: {row}" for row in rows if not _ROW.fullmatch(row)]
    unknown = [row for row in promises() if row.group not in {"", *groups}]
    return [*lines, *(f"PROMISE {row.promise}: there is no group {row.group}" for row in unknown)]


def gate(*folders: str) -> tuple[str, ...]:
    """Return the ids of the tests in these folders that `make test` runs, by file: a file's fixtures are made once."""
    found = (row.test for row in promises() if not row.group and row.test.startswith(folders))
    return tuple(sorted(found, key=lambda test: test.partition("::")[0]))


def loose_quarantine(today: date) -> list[str]:
    """Return a line for each invalid entry of `tests/quarantine.toml`."""
    entries = _quarantine()
    lines = [f"QUARANTINE has {len(entries)} tests; at most three are allowed"] if len(entries) > _MOST else []
    for entry in entries:
        if not today <= entry["expires"] <= today + _LONGEST:
            lines.append(f"QUARANTINE of {entry['test']} ends on {entry['expires']}: not within a week from today")
        if any(row.is_proved_by(entry["test"]) for row in promises()):
            lines.append(f"QUARANTINE of {entry['test']}: it proves a promise")
        if not _exists(entry["test"]):
            lines.append(f"QUARANTINE of {entry['test']}: there is no such test")
    return lines


def quarantined(steps: Iterable[Step]) -> list[str]:
    """Return a line for each test in `tests/quarantine.toml`, with its outcomes in these steps."""
    tests, ran = [entry["test"] for entry in _quarantine()], _outcomes(steps)
    return [f"QUARANTINED {test}: {', '.join(end for name, end in ran if name == test) or 'not run'}" for test in tests]


def unproved(steps: Iterable[Step], groups: Sequence[str]) -> list[str]:
    """Return a line for each promise that no step proved: its test did not run, or was skipped.

    A test may also run in a step with an older version, which skips it.

    Args:
        steps: steps that have ended.
        groups: groups whose tests were run; "" stands for `make test`.
    """
    ended = [_outcomes([step]) for step in steps]
    lines = []
    for row in promises():
        if row.group not in groups:
            continue
        results = [{outcome for test, outcome in outcomes if row.is_proved_by(test)} for outcomes in ended]
        if not any(found and not found & {"skipped", "xfailed"} for found in results):
            lines.append(f"UNPROVED {row.promise}: {row.test} was {'skipped' if any(results) else 'not run'}")
    return lines


def _quarantine() -> list[dict[str, Any]]:
    return [*tomllib.loads((ROOT / "tests" / "quarantine.toml").read_text()).get("quarantined", [])]


def _exists(test: str) -> bool:
    """Return whether the file of this test defines its function; cases are not checked."""
    path, _, name = test.partition("::")
    function = name.partition("[")[0].rpartition("::")[2]
    return (ROOT / path).is_file() and f"def {function}(" in (ROOT / path).read_text()


def _outcomes(steps: Iterable[Step]) -> list[tuple[str, str]]:
    """Return the id and outcome of each test that ran in these steps."""
    return [(each["test"], each["outcome"]) for step in steps for each in step.times if "test" in each]
