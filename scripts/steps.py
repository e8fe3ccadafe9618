"""Steps that must hold: how they are run, one after the other or in lanes beside each other, and summed up."""

from __future__ import annotations

import os
import subprocess
import threading
import time
import xml.etree.ElementTree as ET
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

import held_cluster

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).resolve().parent.parent

_MOST_OF_A_MESSAGE = 600, 600
"""Characters of why a test failed that the summary has: from its beginning, and from its end."""

_SAID = "E  "
"""What pytest's report puts before each line of why; the `message` beside it has the first lines only."""


@dataclass
class Step:
    """One thing that must hold.

    Attributes:
        name: for the headings and the summary.
        command: what is run; a test step gets `--junitxml` added.
        is_test: whether its tests are counted.
        folders: what is tested; those that do not exist are left out.
        measures: the file below the scratch folder that coverage is written to.
        is_good_with: the exit codes that are no failure.
    """

    name: str
    command: tuple[str, ...]
    is_test: bool = False
    folders: tuple[str, ...] = ()
    measures: str = "coverage"
    is_good_with: frozenset[int] = frozenset({0})
    code: int | None = None
    seconds: float = 0
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether it was run and what it checks holds."""
        return self.code in self.is_good_with

    def run(self, scratch: Path, *, lane: str = "") -> None:
        """Run it and write down how it went; its output goes to ours, each line marked with the lane."""
        print(f"\n── {self.name}", flush=True)
        report = scratch / f"{self.name.replace(' ', '-')}.xml"
        folders = [folder for folder in self.folders if (ROOT / folder).exists()]
        command = [*self.command, *folders, *([f"--junitxml={report}"] if self.is_test else [])]
        started = time.monotonic()
        self.code = _run(command, _environment(scratch / self.measures), lane)
        self.seconds = time.monotonic() - started
        if self.is_test:
            self.counts, self.failures = _counts(report), _failures(report)


def run(steps: Sequence[Step], scratch: Path) -> list[Step]:
    """Run steps one after the other and return them."""
    for step in steps:
        step.run(scratch)
    return list(steps)


def run_beside(lanes: Mapping[str, Sequence[Step]], scratch: Path) -> list[Step]:
    """Run lanes of steps beside each other and return the steps; those of a lane follow one another."""
    interrupted = threading.Event()

    def run_lane(name: str) -> None:
        for step in lanes[name]:
            if not interrupted.is_set():
                step.run(scratch, lane=name)

    with ThreadPoolExecutor(len(lanes)) as pool:
        try:
            list(pool.map(run_lane, lanes))
        except KeyboardInterrupt:
            interrupted.set()
            raise
    return [step for steps in lanes.values() for step in steps]


def summary(steps: Sequence[Step]) -> str:
    """Say how each step went and which tests failed; the last line counts the tests of all steps."""
    lines = [f"{'ok    ' if step.is_good else 'FAILED'} {step.seconds:7.1f} s  {step.name}" for step in steps]
    total = sum((step.counts for step in steps), Counter[str]())
    if not any(step.is_test for step in steps):
        return "\n".join(lines)
    skipped = f", {total['skipped']} skipped" if total["skipped"] else ""
    failures = [each for step in steps for each in step.failures]
    return "\n".join([*lines, "", *failures, f"{total['passed']} passed, {total['failed']} failed{skipped}"])


def _run(command: Sequence[str], environment: Mapping[str, str], lane: str) -> int:
    if not lane:
        return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    streams = subprocess.PIPE, subprocess.STDOUT
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=streams[0], stderr=streams[1]) as process:
        assert process.stdout is not None  # noqa: S101 - it was asked for
        relay = threading.Thread(target=_relay, args=(process.stdout, lane), daemon=True)
        relay.start()
        code = process.wait()
        relay.join(timeout=5)  # what it has left running may keep the pipe open
    return code


def _relay(lines: IO[bytes], lane: str) -> None:
    for line in lines:
        print(f"{lane:>8} │ {line.decode(errors='replace')}", end="", flush=True)


def _environment(measures: Path) -> dict[str, str]:
    ours = ("AIRFLOW", "PTJOB_")
    outside = {
        name: value for name, value in os.environ.items() if name == held_cluster.REQUIRED or not name.startswith(ours)
    }
    return {**outside, "COVERAGE_FILE": str(measures), "PYTHONUNBUFFERED": "1"}


def _failures(report: Path) -> list[str]:
    """Return each failed test with the beginning of why; a log that is cut from above ends with them."""
    if not report.exists():
        return []
    cases = ET.parse(report).getroot().iter("testcase")  # noqa: S314 - our own pytest wrote it
    found = [(case, case.find("failure") if case.find("error") is None else case.find("error")) for case in cases]
    return [
        f"FAILED {case.get('classname')}::{case.get('name')}: {_shortened(_why(why))}"
        for case, why in found
        if why is not None
    ]


def _why(failure: ET.Element) -> str:
    said = [line for line in (failure.text or "").splitlines() if line.startswith(_SAID)]
    return "\n".join(line.removeprefix(_SAID) for line in said) or failure.get("message") or ""


def _shortened(message: str) -> str:
    whole = " | ".join(line.strip() for line in message.splitlines() if line.strip())
    first, last = _MOST_OF_A_MESSAGE
    return whole if len(whole) <= first + last else f"{whole[:first]} … {whole[-last:]}"


def _counts(report: Path) -> Counter[str]:
    if not report.exists():
        return Counter(failed=1)
    found: Counter[str] = Counter()
    for suite in ET.parse(report).getroot().iter("testsuite"):  # noqa: S314 - our own pytest wrote it
        failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped = int(suite.get("skipped", 0))
        found.update(passed=int(suite.get("tests", 0)) - failed - skipped, failed=failed, skipped=skipped)
    return found
