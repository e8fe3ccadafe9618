"""Pytest plugin that writes the outcome and duration of tests and slow fixtures to the file PTJOB_TIMES (JSON lines).

A line with `began` is written before each test: if a timeout or crash ends pytest itself, the last such line names
the test.
"""

from __future__ import annotations

import json
import os
import resource
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from demo.infrastructure import InfrastructureFailed

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

WORTH_A_LINE = 0.5
"""Seconds; faster fixtures are not written."""


class Timings:
    """The plugin; it is registered if PTJOB_TIMES is set."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._outcome = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Write the start of a test, and its duration including fixtures."""
        self._write(began=item.nodeid)
        self._outcome = "passed"
        with self._measured(0.0, test=item.nodeid):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        """Write that a test could not start because of its infrastructure; `scripts/steps.py` then repeats it once."""
        if call.when == "setup" and call.excinfo is not None and call.excinfo.errisinstance(InfrastructureFailed):
            self._write(broken=item.nodeid, why=str(call.excinfo.value))
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Derive a test's outcome from its phases."""
        if report.outcome != "passed":
            self._outcome = "xfailed" if hasattr(report, "wasxfail") else report.outcome

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        """Write the duration of a fixture's setup, including the fixtures that it uses."""
        with self._measured(WORTH_A_LINE, fixture=f"{fixturedef.baseid}::{fixturedef.argname}"):
            return (yield)

    @contextmanager
    def _measured(self, least: float, **what: str) -> Iterator[None]:
        began, used = time.monotonic(), _cpu()
        try:
            yield
        finally:
            wall = time.monotonic() - began
            if wall >= least:
                ended = {"outcome": self._outcome} if "test" in what else {}
                self._write(**what, **ended, wall=round(wall, 3), cpu=round(_cpu() - used, 3))

    def _write(self, **line: Any) -> None:
        with self._file.open("a") as lines:
            lines.write(json.dumps(line) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin if PTJOB_TIMES is set."""
    if file := os.environ.get("PTJOB_TIMES"):
        config.pluginmanager.register(Timings(Path(file)))


def _cpu() -> float:
    """Return the CPU seconds of this process and its finished child processes."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
