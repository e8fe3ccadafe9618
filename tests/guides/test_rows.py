"""Tests of docs/reference/from-the-guides.md and the security page: the tests and paths that they name exist."""

from __future__ import annotations

import itertools
import re

from guide_pages import DOCS

ROOT = DOCS.parent
TABLE = [
    [cell.strip() for cell in line.strip("| ").split(" | ")]
    for line in (DOCS / "reference" / "from-the-guides.md").read_text().splitlines()
    if re.match(r"\| [ATK]\d+ \|", line)
]
NAMED = {row[0]: re.findall(r"`([^`]+)`", row[4]) for row in TABLE}


def is_there(test: str) -> bool:
    """Return whether `folder/test_file.py::test_name` below `tests/` exists."""
    file, _, name = test.rpartition("::")
    text = (ROOT / "tests" / file).read_text()
    return bool(re.search(rf"^ *(async )?def {name.partition('[')[0]}\(", text, re.MULTILINE))


def test_a_row_names_tests_that_are_there() -> None:
    assert [test for tests in NAMED.values() for test in tests if not is_there(test)] == []


def test_every_promise_of_the_security_page_has_code_and_tests_that_are_there() -> None:
    promises = (
        (DOCS / "explanation" / "security.md").read_text().rpartition("\n|---|---|---|\n")[2].strip().splitlines()
    )
    named = [re.findall(r"`(\S+\.py)::(?:\w+::)?(\w+)`", promise) for promise in promises]
    missing = [
        f"{file}::{test}" for file, test in itertools.chain.from_iterable(named) if not is_there(f"{file}::{test}")
    ]

    gone = [
        path
        for promise in promises
        for path in re.findall(r"`([^`]+)`", promise.split("|")[2])
        if not (ROOT / "ptjob_provider" / path).exists() and not (ROOT / path).exists()
    ]

    assert all(named)
    assert missing == []
    assert gone == []
