"""Test each supported version of Airflow, and write a table: `make test-versions` (ROWS="3.1 3.3@python3.13").

A row is a version of Airflow on a version of Python; its environment comes from `constraints/airflow-*.txt`. A cell is
the result of one part of the tests (`PARTS=adapter`). A cell that is not run keeps its earlier result.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "airflow-versions.md"
BEGIN, END = "<!-- make test-versions -->\n", "<!-- end -->\n"

ROWS = ("3.1", "3.2", "3.3", "3.4", "3.3@python3.12", "3.3@python3.13")
CONSTRAINTS = {"3.3": "airflow"}
"""Constraints whose name is not `airflow-<version>`: those of the usual environment."""

PARTS = {
    "adapter": ("tests/airflow_adapter",),
    "core": ("tests/core", "tests/cli"),
    "stack": tuple(
        f"tests/airflow_stack/test_{name}.py"
        for name in ("stopping", "live_log", "triggerer", "failures", "training_page")
    ),
    "cluster": ("tests/airflow_cluster/test_preemption.py",),
}
HEAD = (
    "| Airflow | Python | cncf.kubernetes | adapter | core, command line | whole Airflow | evictions on a cluster |\n"
    "|---|---|---|---|---|---|---|\n"
)
NOT_RUN = "not run"


@dataclass(frozen=True)
class Row:
    """A version of Airflow on a version of Python."""

    airflow: str
    python: str

    @classmethod
    def parse(cls, text: str) -> Row:
        """Parse `3.1` or `3.1@python3.13`."""
        airflow, _, python = text.partition("@")
        return cls(airflow, python or "python3")

    @property
    def is_here(self) -> bool:
        """Return whether this machine has the row's Python; it must run, because a version manager may offer a shim."""
        path = shutil.which(self.python)
        return (
            path is not None and subprocess.run([path, "--version"], capture_output=True, check=False).returncode == 0
        )

    @property
    def folder(self) -> Path:
        """Return the folder of the row's environment."""
        return ROOT / f".venv-airflow-{self.airflow}-{Path(self.python).name}"

    def make(self) -> None:
        """Create the environment, or update it."""
        constraints = CONSTRAINTS.get(self.airflow, f"airflow-{self.airflow}")
        words = [str(ROOT / "scripts" / "environment.sh"), "airflow-version", constraints, str(self.folder)]
        subprocess.run(words, check=True, env={**os.environ, "PYTHON": self.python})

    def versions(self) -> tuple[str, str, str]:
        """Return the versions of Airflow, Python and the cncf.kubernetes provider."""
        program = (
            "import platform; from importlib.metadata import version as v; "
            "print(v('apache-airflow'), platform.python_version(), v('apache-airflow-providers-cncf-kubernetes'))"
        )
        result = subprocess.run([self._python, "-c", program], check=True, capture_output=True, text=True)
        airflow, python, provider = result.stdout.split()
        return airflow, python, provider

    def run(self, part: str) -> Result:
        """Run a part of the tests; warnings are errors on 3.3 only: an older Airflow warns about newer providers."""
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.xml"
            lenient = () if self.airflow == "3.3" else ("-W", "default")
            marked = f"{'' if part == 'cluster' else 'not '}cluster and not soak"
            words = (self._python, "-m", "pytest", "-q", *lenient, "-m", marked, f"--junitxml={report}", *PARTS[part])
            subprocess.run(words, check=False, cwd=ROOT)
            return Result.read(report)

    @property
    def _python(self) -> str:
        return str(self.folder / "bin" / "python")


@dataclass(frozen=True)
class Result:
    """Numbers of passed, failed and skipped tests, the latter by reason."""

    passed: int
    failed: int
    skipped: Counter[str]
    seconds: float

    @classmethod
    def read(cls, report: Path) -> Result:
        """Read a JUnit report."""
        suite = next(ET.parse(report).getroot().iter("testsuite"))  # noqa: S314 - pytest has just written it
        cases = list(suite.iter("testcase"))
        skips = [skip for case in cases if (skip := case.find("skipped")) is not None]
        failed = sum(case.find("failure") is not None or case.find("error") is not None for case in cases)
        why = Counter(_reason(skip) for skip in skips if skip.get("type") != "pytest.xfail")
        passed = len(cases) - failed - len(skips)
        return cls(passed=passed, failed=failed, skipped=why, seconds=float(suite.get("time", 0)))

    def __str__(self) -> str:
        """Return the cell of the table."""
        parts = [f"{self.passed} passed"]
        parts += [f"**{self.failed} failed**"] if self.failed else []
        parts += [f"{self.skipped.total()} skipped"] if self.skipped else []
        when = datetime.now(UTC).date()
        return f"{', '.join(parts)} ({when}, {max(1, round(self.seconds / 60))} min)"

    @property
    def reasons(self) -> str:
        """Return the reasons for skipped tests, each with their number."""
        return "; ".join(f"{count} × {why}" for why, count in sorted(self.skipped.items()))


def _reason(skip: ET.Element) -> str:
    """Return why a test was skipped; of a file that was skipped as a whole, the reason is at the end of the text."""
    said = re.search(r"Skipped: (.*?)['\"]\)$", skip.text or "")
    return f"{said[1]} (a whole file)" if said else skip.get("message", "")


def write(versions: tuple[str, str, str], part: str, result: Result) -> None:
    """Write a result into the page: a cell of the table, and a line about skipped tests."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    old, _, after = rest.partition(END)
    table = {(cells[0], cells[1]): cells for cells in map(_cells, re.findall(r"^\| 3\..*\|$", old, re.MULTILINE))}
    airflow, python, provider = versions
    cells = table.setdefault((airflow, python), [airflow, python, provider, *[NOT_RUN] * len(PARTS)])
    cells[2], cells[3 + list(PARTS).index(part)] = provider, str(result)
    skipped = dict(re.findall(r"^- Skipped on (.*?): (.*)$", old, re.MULTILINE))
    skipped[f"{airflow} with Python {python}, {part}"] = result.reasons
    rows = "".join(f"| {' | '.join(table[name])} |\n" for name in sorted(table))
    skips = "".join(f"- Skipped on {name}: {why}\n" for name, why in sorted(skipped.items()) if why)
    PAGE.write_text(f"{before}{BEGIN}\n{HEAD}{rows}\n{skips}\n{END}{after}")


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def main() -> None:
    """Test the named rows, or else all rows whose Python this machine has."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="3.1, or 3.1@python3.13")
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    options = parser.parse_args()
    failed = 0
    for row in map(Row.parse, options.rows or ROWS):
        if not row.is_here:
            print(f"{row.airflow}: not tested with {row.python}, which is not installed", file=sys.stderr)
            continue
        row.make()
        for part in options.parts:
            result = row.run(part)
            print(f"{row.airflow} with {row.python}, {part}: {result}")
            write(row.versions(), part, result)
            failed += result.failed
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
