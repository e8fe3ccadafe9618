"""docs/reference/from-the-guides.md: every row is there once, and its tests are there and run on something real."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from guide_pages import DOCS
from rows import each_row

ROOT = DOCS.parent
ROWS = [*(f"A{n}" for n in range(1, 20)), *(f"T{n}" for n in range(1, 8)), *(f"K{n}" for n in range(1, 17))]
HERE = "this machine"
ON_THIS_MACHINE = {"machine", "ended", "world", "place"}
"""Fixtures that give a test the local back-end."""
OF_ITS_OWN = ("make_home(", "LocalBackend(")
"""What a test has in it that starts an Airflow of its own, which has that back-end by its settings, or makes one."""

TABLE = [
    [cell.strip() for cell in line.strip("| ").split(" | ")]
    for line in (DOCS / "reference" / "from-the-guides.md").read_text().splitlines()
    if re.match(r"\| [ATK]\d+ \|", line)
]
NAMED = {row[0]: [f"tests/{name}" for name in re.findall(r"`([^`]+)`", row[4])] for row in TABLE}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Return where each test runs that a row names, as pytest collects it."""
    file = tmp_path_factory.mktemp("rows") / "collected.json"
    names = sorted({name for tests in NAMED.values() for name in tests})
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "guides.collected", *names]
    env = {**os.environ, "COLLECTED": str(file), "PYTHONPATH": str(ROOT / "tests")}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    found: dict[str, set[str]] = {}
    for each in json.loads(file.read_text()):
        found.setdefault(each["test"], set()).update(place_of(each["test"], each["fixtures"], cluster=each["cluster"]))
    return found


def place_of(test: str, fixtures: list[str], *, cluster: bool) -> set[str]:
    """Return where one test runs; nowhere if it has neither a cluster nor jobs of this machine."""
    if cluster:
        return {"cluster"}
    name, source = test.rpartition("::")[2], (ROOT / test.partition("::")[0]).read_text()
    own = source.partition(f"def {name}(")[2].partition("\ndef ")[0]
    return {HERE} if ON_THIS_MACHINE & set(fixtures) or any(made in own for made in OF_ITS_OWN) else set()


def test_every_row_is_there_once() -> None:
    """In the guides' order, none left out, each with five cells and a test."""
    assert [row[0] for row in TABLE] == ROWS
    assert {len(row) for row in TABLE} == {5}
    assert all(NAMED.values())


@each_row("row", TABLE)
def test_a_row_is_proved_where_it_says_that_it_works(row: list[str], places: dict[str, set[str]]) -> None:
    """Each of its tests runs on something real, and together they run in all its places."""
    tests = NAMED[row[0]]

    assert [name for name in tests if not places[name]] == []
    assert {place.strip() for place in row[3].split(",")} <= set().union(*(places[name] for name in tests))


def test_every_promise_of_the_security_page_has_code_and_tests_that_are_there() -> None:
    """Each promise has a test at least, by file and name."""
    promises = (
        (DOCS / "explanation" / "security.md").read_text().rpartition("\n|---|---|---|\n")[2].strip().splitlines()
    )
    named = [re.findall(r"`(\S+\.py)::(\w+)`", promise) for promise in promises]
    missing = [
        f"{file}::{test}"
        for file, test in itertools.chain.from_iterable(named)
        if not re.search(rf"^ *(async )?def {test}\(", (ROOT / "tests" / file).read_text(), re.MULTILINE)
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


@pytest.mark.parametrize("page", ["from-arena.md", "from-kubectl.md", "from-t9k.md"])
def test_the_table_leads_to_every_page(page: str) -> None:
    """And the page is there."""
    assert f"(../tutorials/{page})" in (DOCS / "reference" / "from-the-guides.md").read_text()
    assert Path(DOCS / "tutorials" / page).is_file()
