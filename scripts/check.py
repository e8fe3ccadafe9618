"""Everything that must hold, one step after the other; what `make test` runs.

A failed step does not keep the others from running. The last line counts the tests of all steps; the exit code is 0
only if every step was good.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"
PYTEST = (str(BIN / "python"), "-m", "pytest", "-q")
PYTEST_KFP = (str(ROOT / ".venv-kfp" / "bin" / "python"), "-m", "pytest", "-q")

EITHER_ENVIRONMENT = ("tests/core", "tests/contract", "tests/cli")
"""Need neither Airflow nor PyTorch, so they run in both environments, in one of them with coverage."""

CLUSTER = "tests/cluster"
"""Builds and boots a Kubernetes, which nothing in the package needs yet: `make test-cluster` runs it."""

PURE = (
    "attempts",
    "conclusion",
    "diagnosis",
    "errors",
    "handover",
    "identity",
    "kinds",
    "logs",
    "manifest",
    "outputs",
    "probe",
    "recorder",
    "result",
    "spec",
    "status",
)
"""Modules and packages of the core that decide and do nothing else: every branch is tested."""

LOCAL_COVERAGE = 85


@dataclass
class Step:
    """One thing that must hold.

    Attributes:
        name: for the headings and the summary.
        command: what is run; a test step gets `--junitxml` added.
        is_test: whether its tests are counted.
        needs: folders; those that do not exist are left out, and without any the step is not run.
    """

    name: str
    command: tuple[str, ...]
    is_test: bool = False
    needs: tuple[str, ...] = ()
    good: bool = False
    seconds: float = 0
    counts: Counter[str] = field(default_factory=Counter)

    def run(self, scratch: Path) -> None:
        """Run it and write down how it went; its output goes to ours."""
        print(f"\n── {self.name}", flush=True)
        report = scratch / f"{self.name.replace(' ', '-')}.xml"
        folders = [folder for folder in self.needs if (ROOT / folder).exists()]
        command = [*self.command, *folders, *([f"--junitxml={report}"] if self.is_test else [])]
        started = time.monotonic()
        self.good = subprocess.run(command, cwd=ROOT, env=_environment(scratch), check=False).returncode == 0
        self.seconds = time.monotonic() - started
        if self.is_test:
            self.counts = _counts(report)


def lint_steps() -> list[Step]:
    """Return the steps that read the code."""
    return [
        Step("format", (str(BIN / "ruff"), "format", "--check", "--quiet", ".")),
        Step("lint", (str(BIN / "ruff"), "check", "--quiet", ".")),
        Step("types", (str(BIN / "mypy"),)),
        Step("imports", (str(BIN / "lint-imports"), "--no-logo")),
    ]


def test_steps() -> list[Step]:
    """Return the steps that run the code."""
    measured = ("--cov", "--cov-report=")
    rest = tuple(f"--ignore={folder}" for folder in (*EITHER_ENVIRONMENT, CLUSTER))
    report = (str(BIN / "python"), "-m", "coverage", "report", "--skip-covered", "--show-missing")
    pure = ",".join(f"ptjob_provider/core/{name}{end}" for name in PURE for end in (".py", "/*"))
    return [
        Step("core beside kfp", PYTEST_KFP, is_test=True, needs=EITHER_ENVIRONMENT),
        Step("core beside Airflow", (*PYTEST, *measured), is_test=True, needs=EITHER_ENVIRONMENT),
        Step("every branch of the pure modules", (*report, "--fail-under=100", f"--include={pure}")),
        Step("coverage of local", (*report, f"--fail-under={LOCAL_COVERAGE}", "--include=ptjob_provider/core/local/*")),
        Step("adapters, examples, stack", (*PYTEST, *rest), is_test=True),
    ]


def summary(steps: list[Step]) -> str:
    """Say how each step went; the last line counts the tests of all of them."""
    lines = [f"{'ok    ' if step.good else 'FAILED'} {step.seconds:7.1f} s  {step.name}" for step in steps]
    total = sum((step.counts for step in steps), Counter[str]())
    if not any(step.is_test for step in steps):
        return "\n".join(lines)
    skipped = f", {total['skipped']} skipped" if total["skipped"] else ""
    return "\n".join([*lines, "", f"{total['passed']} passed, {total['failed']} failed{skipped}"])


def main(arguments: list[str]) -> int:
    """Run the steps and return the exit code."""
    steps = lint_steps() if arguments == ["--lint"] else [*lint_steps(), *test_steps()]
    with tempfile.TemporaryDirectory(prefix="ptjob-check-") as scratch:
        for step in steps:
            step.run(Path(scratch))
    print(f"\n── summary\n{summary(steps)}", flush=True)
    return 0 if all(step.good for step in steps) else 1


def _environment(scratch: Path) -> dict[str, str]:
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PTJOB_"))}
    return {**outside, "COVERAGE_FILE": str(scratch / "coverage"), "PYTHONUNBUFFERED": "1"}


def _counts(report: Path) -> Counter[str]:
    if not report.exists():
        return Counter(failed=1)
    found: Counter[str] = Counter()
    for suite in ET.parse(report).getroot().iter("testsuite"):  # noqa: S314 - our own pytest wrote it
        failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped = int(suite.get("skipped", 0))
        found.update(passed=int(suite.get("tests", 0)) - failed - skipped, failed=failed, skipped=skipped)
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
