"""Load a text as a file or as the cells of a notebook, for tests of functions that travel."""

from __future__ import annotations

import ast
import codeop
import importlib.util
import json
import os
import subprocess
import sys
import types
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.code.program import script
from ptjob_provider.core.in_pod.run_function import KEY, RETURN_VALUE

if TYPE_CHECKING:
    from pathlib import Path

    from ptjob_provider.core.code.function import FunctionSource


def loaded(folder: Path, text: str) -> types.ModuleType:
    """Write a file and import it without bytecode, which is compared only by second and size."""
    file = folder / "case.py"
    file.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("case", file)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    exec(compile(text, file, "exec", dont_inherit=True), vars(module))  # noqa: S102 - this test's own text
    return module


def cells(text: str) -> list[str]:
    """Return the text as cells of a notebook, one for each line that has a statement of its own."""
    lines = text.splitlines(keepends=True)
    starts = {
        min([each.lineno, *(at.lineno for at in getattr(each, "decorator_list", ()))]) for each in ast.parse(text).body
    }
    return ["".join(lines[start - 1 : end - 1]) for start, end in pairwise([*sorted(starts), len(lines) + 1])]


def notebook(*cells: str, module: types.ModuleType | None = None) -> Any:
    """Run cells as IPython does, and return `train`; the module takes the place of `__main__`."""
    space: dict[str, Any] = vars(module or types.ModuleType("__main__"))
    space |= {"In": ["", *cells]}
    space["get_ipython"] = lambda: types.SimpleNamespace(run_cell_magic=magic, run_line_magic=print)
    compiled = codeop.Compile()  # a future import holds in later cells, too

    def magic(name: str, _: str, text: str) -> None:
        if name == "time":
            exec(text, space)  # noqa: S102 - a notebook

    for number, cell in enumerate(cells):
        try:
            exec(compiled(cell, f"<ipython-input-{number}>", "exec"), space)  # noqa: S102 - a notebook
        except (SyntaxError, ZeroDivisionError):
            continue
    return space["train"]


def run(source: FunctionSource, folder: Path, *args: Any) -> Any:
    """Run the program in a process that has neither the file nor this package, and return its value."""
    program, returned = folder / "script.py", folder / "returned"
    returned.unlink(missing_ok=True)
    program.write_text(script(source, args), encoding="utf-8")
    environ = {"PATH": os.environ["PATH"], RETURN_VALUE: str(returned)}
    done = subprocess.run([sys.executable, "-I", "-S", str(program)], env=environ, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-500:]
    return json.loads(returned.read_text())[KEY] if returned.exists() else None
