"""Pytest plugin for the tests in `tests/quarantine.toml`: their failures are reported as expected.

At most three tests, each with a reason, an owner and an end date within a week; never the test of a promise
(`tests/promises.md`). `scripts/check.py` fails otherwise.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

FILE = Path(__file__).with_suffix(".toml")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    entries = {entry["test"]: entry for entry in tomllib.loads(FILE.read_text()).get("quarantined", [])}
    for item in items:
        if entry := entries.get(item.nodeid):
            reason = f"in quarantine until {entry['expires']} ({entry['owner']}): {entry['reason']}"
            item.add_marker(pytest.mark.xfail(reason=reason, strict=False))
