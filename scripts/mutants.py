"""Plant the faults of tests/mutants.toml, one at a time, and check that each is caught by the test that it names.

A fault changes one text within one symbol of the product, in a copy of the tree. Its gate test runs first without the
fault (all gate tests together), then with the fault, and must then fail by an assertion: an exception of the broken
code alone proves no promise. A fault is red, too, if its symbol or text no longer exists.

Results are cached in the user's cache folder, by a digest of the product, the tests and the fault: an interrupted run
resumes where it stopped.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import hashlib
import importlib.util
import json
import multiprocessing
import os
import py_compile
import shutil
import sys
import tempfile
import time
import tomllib
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

ROOT = Path(__file__).resolve().parent.parent
LIST = "tests/mutants.toml"
PRODUCT = "ptjob_provider"
CONTENT = (PRODUCT, "tests", "demo", "dags", "pipelines", "pyproject.toml")
"""Files that the result of a gate test may depend on."""

TIMEOUT = 240.0
"""Seconds for one gate test; a fault that makes it hang is not caught."""

HAS_KFP = importlib.util.find_spec("kfp") is not None
"""True in the environment of pipelines, which runs their gate tests; Airflow's environment runs all others."""

FORKS = multiprocessing.get_context("forkserver")
"""Forks each run from a process that has already imported slow modules."""

FORKS.set_forkserver_preload(["hypothesis", "aiohttp", "sqlalchemy", "yaml", "airflow.sdk"])


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A change of the product, and the test that catches it.

    Attributes:
        name: the fault, as a sentence.
        symbol: `module:qualified.name` of a class, function or constant.
        find: a text that occurs once in the symbol's source.
        replace: the text that replaces it.
        test: pytest's id of the gate test; an id without a case means all its cases.
    """

    name: str
    symbol: str
    find: str
    replace: str
    test: str

    def file(self, tree: Path) -> Path:
        """Return the file to change."""
        path = tree / self.symbol.partition(":")[0].replace(".", "/")
        return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")

    def applied(self, source: str) -> str:
        """Return the file's text with the fault.

        Raises:
            ValueError: the symbol does not exist, or the text does not occur in it exactly once.
            SyntaxError: the result is not Python.
        """
        first, last = _lines_of(source, self.symbol.partition(":")[2])
        lines = source.splitlines(keepends=True)
        text = "".join(lines[first:last])
        if (times := text.count(self.find)) != 1:
            raise ValueError(f"the text occurs {times} times, not once")
        changed = "".join([*lines[:first], text.replace(self.find, self.replace), *lines[last:]])
        ast.parse(changed)
        return changed


@dataclass(eq=False)
class Ends:
    """A pytest plug-in that runs only these tests and records how each ended: "passed", "asserted" or otherwise."""

    tests: Sequence[str]
    by_test: dict[str, str] = field(default_factory=dict)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Deselect the other tests of the same files; a missing test does not stop the others."""
        items[:] = [item for item in items if {item.nodeid, item.nodeid.partition("[")[0]} & set(self.tests)]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Record how a phase of a test ended; of several, the first phase that did not pass counts."""
        report = yield
        if self.by_test.get(item.nodeid, "passed") == "passed":
            self.by_test[item.nodeid] = _failure(item, call) if report.failed else report.outcome
        return report


def main() -> int:
    """Try the faults and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", help="only faults with one of these in their name or symbol")
    words = parser.parse_args().words
    faults = [Fault(**fields) for fields in tomllib.loads((ROOT / LIST).read_text())["fault"]]
    runnable = [fault for fault in faults if fault.test.startswith("tests/kfp_") is HAS_KFP]
    wanted = [fault for fault in runnable if any(word in f"{fault.name} {fault.symbol}" for word in words or [""])]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ptjob-provider" / "mutants.json"
    with tempfile.TemporaryDirectory(prefix="ptjob-mutants-") as folder:
        tree = Path(folder) / "tree"
        os.environ |= {"PYTHONPATH": os.pathsep.join([str(tree), str(tree / "tests")]), "AIRFLOW_HOME": folder}
        return try_faults(wanted, tree, cache)


def try_faults(faults: Sequence[Fault], tree: Path, cache: Path) -> int:
    """Try the faults in a copy of the tree, print each result, and return the exit code."""
    began = time.monotonic()
    content = _copy(tree)
    keys = {fault: hashlib.sha256(json.dumps([content, *astuple(fault)]).encode()).hexdigest() for fault in faults}
    caught = json.loads(cache.read_text()) if cache.exists() else []
    left = [fault for fault in faults if keys[fault] not in caught]
    print(f"{len(faults)} faults, {len(faults) - len(left)} of them caught before", flush=True)
    green = _ends(tree, sorted({fault.test for fault in left}))
    red = []
    for fault in left:
        started = time.monotonic()
        end = _end_with(fault, tree) if green[fault.test] == "passed" else f"{green[fault.test]} without the fault"
        if end == "asserted":
            caught.append(keys[fault])
            cache.parent.mkdir(parents=True, exist_ok=True)
            cache.write_text(json.dumps(caught))
        else:
            red.append(f"RED  {fault.name}: {end}\n     {fault.symbol}\n     {fault.test}")
        result = "caught" if end == "asserted" else "RED   "
        print(f"{result}  {fault.name} ({time.monotonic() - started:.1f} s)", flush=True)
    print("", f"{len(faults) - len(red)} of {len(faults)} caught, {time.monotonic() - began:.0f} s", *red, sep="\n")
    return 1 if red else 0


def _end_with(fault: Fault, tree: Path) -> str:
    """Return how the gate test ends with the fault."""
    file = fault.file(tree)
    try:
        before = file.read_text()
        changed = fault.applied(before)
    except (OSError, ValueError, SyntaxError) as error:
        return f"it does not apply: {error}"
    file.write_text(changed)
    end = _ends(tree, [fault.test])[fault.test]
    file.write_text(before)
    return "survived" if end == "passed" else end


def _ends(tree: Path, tests: Sequence[str]) -> dict[str, str]:
    """Run tests of the tree in a new process, and return the outcome of each: the worst of its cases."""
    report = tree.parent / "report.json"
    report.write_text("{}")
    process = FORKS.Process(target=_run, args=(tree, tests, report))
    process.start()
    process.join(TIMEOUT * len(tests))
    process.kill()
    reported = json.loads(report.read_text()).items()
    cases = {test: [end for case, end in reported if test in {case, case.partition("[")[0]}] for test in tests}
    rank = {"asserted": 0, "passed": 2}
    return {test: min(ends, key=lambda end: rank.get(end, 1), default="not run") for test, ends in cases.items()}


def _run(tree: Path, tests: Sequence[str], report: Path) -> None:
    """Run tests of the tree in this process, and write their outcomes."""
    os.chdir(tree)
    for name in [name for name in sys.modules if name.partition(".")[0] == PRODUCT]:
        del sys.modules[name]  # Airflow reads the provider's metadata from the checkout
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    ends = Ends(tests)
    files = sorted({test.partition("::")[0] for test in tests})
    pytest.main(["-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning", *files], plugins=[ends])
    if Path(sys.modules[PRODUCT].__file__ or "").is_relative_to(tree):
        report.write_text(json.dumps(ends.by_test))


def _failure(item: pytest.Item, call: pytest.CallInfo[None]) -> str:
    """Return "asserted" if the test asserted, or unpacked its result; otherwise the phase's outcome."""
    if call.excinfo is None or call.when != "call":
        return f"failed in its {call.when}"
    is_asserted = issubclass(call.excinfo.type, (AssertionError, pytest.fail.Exception))
    is_here = call.excinfo.type is ValueError and call.excinfo.traceback[-1].path == item.path
    is_unpacked = is_here and "values to unpack" in str(call.excinfo.value)
    return "asserted" if is_asserted or is_unpacked else f"{call.excinfo.typename} instead of an assertion"


def _copy(tree: Path) -> str:
    """Copy the tree, and return a digest of its content.

    The product is compiled so that Python notices a changed source by its hash, because a fault may change neither the
    time nor the size of a file.
    """
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".*", "__pycache__", "dist"))
    digest = hashlib.sha256()
    for file in sorted(file for name in CONTENT for file in [tree / name, *(tree / name).rglob("*")] if file.is_file()):
        name = file.relative_to(tree).as_posix()
        if name != LIST:  # a new fault changes no other result
            digest.update(f"{name}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    checked = py_compile.PycInvalidationMode.CHECKED_HASH
    compileall.compile_dir(tree / PRODUCT, quiet=1, invalidation_mode=checked)
    return digest.hexdigest()


def _lines_of(source: str, name: str) -> tuple[int, int]:
    """Return the index of a symbol's first line, including decorators, and the index after its last line.

    Raises:
        ValueError: the symbol does not exist.
    """
    body: Iterable[ast.stmt] = ast.parse(source).body
    first, last = 0, 0
    for part in name.split("."):
        node = next((node for node in body if _defines(node, part)), None)
        if node is None:
            raise ValueError(f"there is no {name}")
        starts = [node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))]
        first, last = min(starts) - 1, node.end_lineno or node.lineno
        body = getattr(node, "body", [])
    return first, last


def _defines(node: ast.stmt, name: str) -> bool:
    """Return whether a statement defines a class, function or constant of this name."""
    targets = getattr(node, "targets", [getattr(node, "target", None)])
    return name in {getattr(node, "name", None), *(getattr(target, "id", None) for target in targets)}


if __name__ == "__main__":
    sys.exit(main())
