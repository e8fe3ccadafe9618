"""Run steps one after the other or in parallel lanes, and summarize the results."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
import xml.etree.ElementTree as ET
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import held_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ROOT = Path(__file__).resolve().parent.parent

_MESSAGE_ENDS = 600, 600
"""Maximum characters of a failure's message in the summary: from its beginning, and from its end."""

_TIMES = ROOT / ".test-times.jsonl"
"""Duration of each test and fixture of the last run, with its step; the summary shows the slowest."""

_SLOWEST = 12

_FAILURES = {"error": "FAILED", "failure": "FAILED", "skipped": "SKIPPED"}
"""The elements of pytest's report that make a step fail, and their words in the summary."""

_NEEDS_VERSION = "needs kfp "
"""Beginning of the only reason for which a test may be skipped if a cluster is required."""

_REASON = "E  "
"""Prefix of each line of the reason in pytest's report; the `message` attribute has only the first lines."""


@dataclass
class Step:
    """One check.

    Attributes:
        name: the name in headings and in the summary.
        command: the command; `--junitxml` is added for a test step.
        is_test: whether the step runs tests, which are counted.
        is_build: whether the step prepares infrastructure; if it fails, it is repeated once.
        folders: paths or ids of the tests; missing ones are left out.
        measures: name of the coverage file in the scratch folder.
        is_good_with: the exit codes that count as success.
        needs: an earlier step or one of another lane that must have succeeded first. Otherwise this step is not run,
            and ends with the same result.
        then: called after the command has succeeded, before dependent steps begin; returns the step's exit code.
        code: the exit code, once the step has ended.
        seconds: wall-clock time.
        cpu_seconds: user and system time of the command and of the processes that it waited for.
        repeated: a line for each reason why tests, or a build, ran twice: infrastructure did not start the first time.
    """

    name: str
    command: tuple[str, ...]
    is_test: bool = False
    is_build: bool = False
    folders: tuple[str, ...] = ()
    measures: str = "coverage"
    is_good_with: frozenset[int] = frozenset({0})
    needs: Step | None = None
    then: Callable[[], int] | None = None
    code: int | None = None
    seconds: float = 0
    cpu_seconds: float = 0
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    times: list[dict[str, Any]] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def is_good(self) -> bool:
        """Return whether the step was run and succeeded."""
        return self.code in self.is_good_with

    def run(self, scratch: Path, *, lane: str = "") -> None:
        """Wait for the needed step, run this one and record the result; each line of output begins with the lane."""
        try:
            if self._is_ready():
                self._run(scratch, lane)
        except BaseException:
            self.code = 1
            raise
        finally:
            self.ended.set()

    def _is_ready(self) -> bool:
        if self.needs is None:
            return True
        self.needs.ended.wait()
        if self.needs.code == 0:
            return True
        print(f"\n── {self.name}: left out, for this did not end well: {self.needs.name}", flush=True)
        self.code, self.is_good_with = self.needs.code, self.needs.is_good_with
        return False

    def _run(self, scratch: Path, lane: str) -> None:
        print(f"\n── {self.name}", flush=True)
        started = time.monotonic()
        folders = [folder for folder in self.folders if (ROOT / folder.partition("::")[0]).exists()]
        self._run_once(scratch, lane, folders, "first")
        if broken := {each["broken"]: each["why"] for each in self.times if "broken" in each}:
            self._repeat(scratch, lane, broken)
        elif self.is_build and not self.is_good and self.code != -signal.SIGINT:
            self.repeated = [f"REPEATED {self.name}: exit code {self.code}"]
            self.counts["repeated"] = 1
            print(f"\n── {self.name}: repeated", *self.repeated, sep="\n", flush=True)
            self._run_once(scratch, lane, folders, "second")
        self.seconds = time.monotonic() - started

    def _run_once(self, scratch: Path, lane: str, targets: Sequence[str], number: str) -> None:
        report = scratch / f"{self.name.replace(' ', '-').replace('/', '-')}-{number}.xml"
        command = [*self.command, *targets, *([f"--junitxml={report}"] if self.is_test else [])]
        times = report.with_suffix(".jsonl")
        self.code, used = _run(command, _environment(scratch / self.measures, times), lane)
        self.cpu_seconds += used
        if self.code == 0 and self.then is not None:
            self.code = self.then()
        if self.is_test:
            self.times = _times(times)
            self.counts, self.failures = _counts(report), _failures(report, self.times)
            self.code = self.code or (1 if self.failures else 0)

    def _repeat(self, scratch: Path, lane: str, broken: Mapping[str, str]) -> None:
        """Repeat the tests whose infrastructure did not start; a second failure counts.

        The new pytest uses the same shared cluster, because other lanes use it at that moment; only if the cluster's
        machine has ended, that pytest boots a new one.
        """
        code, times, counts, failures = self.code, self.times, self.counts, self.failures
        reasons = Counter(why.strip().partition("\n")[0] for why in broken.values())
        self.repeated = [f"REPEATED {self.name} (tests: {count}): {why}" for why, count in reasons.items()]
        print(f"\n── {self.name}: repeated", *self.repeated, sep="\n", flush=True)
        adds = ["--cov-append"] if "--cov" in self.command else []
        self._run_once(scratch, lane, [*adds, *broken], "second")
        kept = [each for each in failures if not each.startswith(tuple(f"FAILED {_in_xml(test)}:" for test in broken))]
        self.code = code if kept else self.code
        self.failures = [*kept, *self.failures]
        self.times = [*(each for each in times if each.get("test") not in broken), *self.times]
        self.counts += counts - Counter(failed=len(failures) - len(kept)) + Counter(repeated=len(broken))


def run(steps: Sequence[Step], scratch: Path) -> list[Step]:
    """Run steps one after the other and return them."""
    for step in steps:
        step.run(scratch)
    return list(steps)


def run_beside(lanes: Mapping[str, Sequence[Step]], scratch: Path) -> list[Step]:
    """Run lanes of steps in parallel and return the steps; the steps of one lane run one after the other."""
    interrupted = threading.Event()

    def run_lane(name: str) -> None:
        for step in lanes[name]:
            if interrupted.is_set():
                step.ended.set()  # a step of another lane may wait for it
            else:
                step.run(scratch, lane=name)

    with ThreadPoolExecutor(len(lanes)) as pool:
        try:
            list(pool.map(run_lane, lanes))
        except KeyboardInterrupt:
            interrupted.set()
            raise
    return [step for steps in lanes.values() for step in steps]


def summary(steps: Sequence[Step]) -> str:
    """Return the result of each step and the failed tests; the last line counts the tests of all steps."""
    lines = [
        f"{'ok    ' if step.is_good else 'FAILED'} {step.seconds:7.1f} s, CPU {step.cpu_seconds:7.1f} s  {step.name}"
        for step in steps
    ]
    total = sum((step.counts for step in steps), Counter[str]())
    if not any(step.is_test for step in steps):
        return "\n".join(lines)
    failures = [each for step in steps for each in step.failures]
    failures += [each for step in steps for each in step.repeated]
    more = "".join(f", {total[what]} {what}" for what in ("skipped", "repeated") if total[what])
    last = f"{total['passed']} passed, {total['failed']} failed{more}"
    return "\n".join([*lines, "", *_slowest(steps), "", *failures, last])


def _slowest(steps: Sequence[Step]) -> list[str]:
    """Write all durations to a file, and return the slowest tests and fixtures as lines."""
    ended = [{"step": step.name, **each} for step in steps for each in step.times if "wall" in each]
    _TIMES.write_text("".join(f"{json.dumps(each)}\n" for each in ended))
    most = sorted(ended, key=lambda each: -each["wall"])[:_SLOWEST]
    named = [each.get("test") or f"fixture {each['fixture']}" for each in most]
    rows = [f"{each['wall']:7.1f} s, CPU {each['cpu']:7.1f} s  {name}" for each, name in zip(most, named, strict=True)]
    return [f"slowest of {len(ended)}, all in {_TIMES.name}:", *rows]


def _run(command: Sequence[str], environment: Mapping[str, str], lane: str) -> tuple[int, float]:
    """Run a command; return its exit code, and the CPU seconds of it and of all descendants that were waited for."""
    streams = (subprocess.PIPE, subprocess.STDOUT) if lane else (None, None)
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=streams[0], stderr=streams[1]) as process:
        relay = threading.Thread(target=_relay, args=(process.stdout, lane), daemon=True)
        if lane:
            relay.start()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if lane:
            relay.join(timeout=5)  # a process that the command left running may keep the pipe open
    return process.returncode, used.ru_utime + used.ru_stime


def _relay(lines: IO[bytes], lane: str) -> None:
    for line in lines:
        print(f"{lane:>8} │ {line.decode(errors='replace')}", end="", flush=True)


def _environment(measures: Path, times: Path) -> dict[str, str]:
    settings = ("AIRFLOW", "PTJOB_")
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name == held_cluster.REQUIRED or not name.startswith(settings)
    }
    return {**inherited, "COVERAGE_FILE": str(measures), "PTJOB_TIMES": str(times), "PYTHONUNBUFFERED": "1"}


def _times(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _failures(report: Path, times: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return each failed or wrongly skipped test with its shortened reason: a log's beginning may be cut off."""
    if not report.exists():
        last = next((each["began"] for each in reversed(times) if "began" in each), "the first test")
        return [f"FAILED {last}: pytest did not get over it (a time-out, or the process ended)"]
    cases = ET.parse(report).getroot().iter("testcase")  # noqa: S314 - our own pytest wrote it
    return [
        f"{_FAILURES[result.tag]} {case.get('classname')}::{case.get('name')}: {_shortened(_why(result))}"
        for case in cases
        for result in case
        if result.tag in _FAILURES and (result.tag != "skipped" or not _may_be_skipped(result))
    ]


def _may_be_skipped(result: ET.Element) -> bool:
    is_explained = result.get("type") == "pytest.xfail" or result.get("message", "").startswith(_NEEDS_VERSION)
    return is_explained or not held_cluster.is_required()


def _in_xml(test: str) -> str:
    """Return the name of this test in pytest's report."""
    path, _, name = test.partition("::")
    return f"{path.removesuffix('.py').replace('/', '.')}::{name}"


def _why(failure: ET.Element) -> str:
    reason = [line for line in (failure.text or "").splitlines() if line.startswith(_REASON)]
    return "\n".join(line.removeprefix(_REASON) for line in reason) or failure.text or failure.get("message") or ""


def _shortened(message: str) -> str:
    whole = " | ".join(line.strip() for line in message.splitlines() if line.strip())
    first, last = _MESSAGE_ENDS
    return whole if len(whole) <= first + last else f"{whole[:first]} … {whole[-last:]}"


def _counts(report: Path) -> Counter[str]:
    if not report.exists():
        return Counter(failed=1)
    counts: Counter[str] = Counter()
    for suite in ET.parse(report).getroot().iter("testsuite"):  # noqa: S314 - our own pytest wrote it
        failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped = int(suite.get("skipped", 0))
        counts.update(passed=int(suite.get("tests", 0)) - failed - skipped, failed=failed, skipped=skipped)
    return counts
