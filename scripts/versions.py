"""Test each supported Airflow, and write the table of results: `make test-versions` (ROWS="3.1 3.3@python3.13").

A row is an Airflow and a Python. Its environment comes from `constraints/airflow-*.txt`; its tests are those of the
adapter, and four files on a whole Airflow (`--stack`). A row that does not run keeps its results of an earlier day.
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
"""Constraints with another name than `airflow-<version>`: those of the usual environment."""

ADAPTER = ("tests/airflow_adapter",)
STACK = tuple(f"tests/airflow_stack/test_{name}.py" for name in ("stopping", "live_log", "triggerer", "failures"))
WITHOUT = ("-m", "not cluster and not soak")


@dataclass(frozen=True)
class Row:
    """One Airflow on one Python."""

    airflow: str
    python: str

    @classmethod
    def parse(cls, text: str) -> Row:
        """Parse `3.1` or `3.1@python3.13`."""
        airflow, _, python = text.partition("@")
        return cls(airflow, python or "python3")

    @property
    def folder(self) -> Path:
        """The row's environment."""
        return ROOT / f".venv-airflow-{self.airflow}-{Path(self.python).name}"

    def make(self) -> None:
        """Make the environment, or bring it up to date."""
        constraints = CONSTRAINTS.get(self.airflow, f"airflow-{self.airflow}")
        words = [str(ROOT / "scripts" / "environment.sh"), "airflow-version", constraints, str(self.folder)]
        subprocess.run(words, check=True, env={**os.environ, "PYTHON": self.python})

    def versions(self) -> list[str]:
        """Return the versions of Airflow, Python and the cncf.kubernetes provider."""
        program = (
            "import platform; from importlib.metadata import version as v; "
            "print(v('apache-airflow'), platform.python_version(), v('apache-airflow-providers-cncf-kubernetes'))"
        )
        said = subprocess.run([self._python, "-c", program], check=True, capture_output=True, text=True)
        return said.stdout.split()

    def run(self, tests: tuple[str, ...]) -> Result:
        """Run tests; warnings of an older Airflow about newer providers are not errors."""
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.xml"
            lenient = () if self.airflow == "3.3" else ("-W", "default")
            words = (self._python, "-m", "pytest", "-q", *lenient, *WITHOUT, f"--junitxml={report}", *tests)
            subprocess.run(words, check=False, cwd=ROOT)
            return Result.read(report)

    @property
    def _python(self) -> str:
        return str(self.folder / "bin" / "python")


@dataclass(frozen=True)
class Result:
    """How many tests ended how, and why some did not run."""

    passed: int
    failed: int
    skipped: Counter[str]

    @classmethod
    def read(cls, report: Path) -> Result:
        """Read a JUnit report."""
        cases = list(ET.parse(report).getroot().iter("testcase"))  # noqa: S314 - pytest has just written it
        skips = [skip for case in cases if (skip := case.find("skipped")) is not None]
        failed = sum(case.find("failure") is not None or case.find("error") is not None for case in cases)
        why = Counter(skip.get("message", "") for skip in skips if skip.get("type") == "pytest.skip")
        return cls(passed=len(cases) - failed - len(skips), failed=failed, skipped=why)

    def __str__(self) -> str:
        """Return the cell of the table."""
        parts = [f"{self.passed} passed"]
        parts += [f"**{self.failed} failed**"] if self.failed else []
        parts += [f"{self.skipped.total()} skipped"] if self.skipped else []
        return ", ".join(parts)


def tested(row: Row, *, stack: bool) -> tuple[str, str, Counter[str]]:
    """Return a row's name, its line of the table, and why tests were skipped."""
    row.make()
    airflow, python, provider = row.versions()
    adapter = row.run(ADAPTER)
    whole = row.run(STACK) if stack else None
    name = f"{airflow} | {python}"
    when = datetime.now(UTC).date()
    line = f"| {name} | {provider} | {adapter} | {whole or 'not run'} | {when} |"
    return name, line, adapter.skipped + (whole.skipped if whole else Counter())


def write(lines: dict[str, str], reasons: dict[str, Counter[str]]) -> None:
    """Replace these rows of the page, and what they say about skipped tests."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    old, _, after = rest.partition(END)
    table = dict(re.findall(r"^\| (3\.\S+ \| \S+) (\|.*)$", old, re.MULTILINE))
    table = {name: f"| {name} {line}" for name, line in table.items()} | lines
    said = dict(re.findall(r"^- Skipped on (\S+): (.*)$", old, re.MULTILINE))
    said |= {name: "; ".join(f"{count} × {why}" for why, count in sorted(why.items())) for name, why in reasons.items()}
    head = "| Airflow | Python | cncf.kubernetes | adapter | whole Airflow | run |\n|---|---|---|---|---|---|\n"
    rows = "".join(f"{table[name]}\n" for name in sorted(table))
    skips = "".join(f"- Skipped on {name}: {text}\n" for name, text in sorted(said.items()) if text)
    PAGE.write_text(f"{before}{BEGIN}\n{head}{rows}\n{skips}\n{END}{after}")


def main() -> None:
    """Test the rows that are named, else all whose Python is here."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="3.1, or 3.1@python3.13")
    parser.add_argument("--no-stack", action="store_true", help="leave out the tests on a whole Airflow")
    asked = parser.parse_args()
    for row in map(Row.parse, asked.rows or ROWS):
        if shutil.which(row.python) is None:
            print(f"{row.airflow}: not tested with {row.python}, which is not installed", file=sys.stderr)
            continue
        name, line, why = tested(row, stack=not asked.no_stack)
        print(line)
        write({name: line}, {name.partition(" ")[0]: why})


if __name__ == "__main__":
    main()
