"""Load a text as a file or as the cells of a notebook, for tests of functions that travel."""

from __future__ import annotations

import importlib.util
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def loaded(folder: Path, text: str) -> types.ModuleType:
    """Write a file and import it without bytecode, which is compared only by second and size."""
    file = folder / "case.py"
    file.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("case", file)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    exec(compile(text, file, "exec", dont_inherit=True), vars(module))  # noqa: S102 - this test's own text
    return module


def notebook(*cells: str) -> Any:
    """Run cells as IPython does, and return `train`."""
    space: dict[str, Any] = {"In": ["", *cells], "__name__": "__main__"}
    space["get_ipython"] = lambda: types.SimpleNamespace(run_cell_magic=magic, run_line_magic=print)

    def magic(name: str, _: str, text: str) -> None:
        if name == "time":
            exec(text, space)  # noqa: S102 - a notebook

    for number, cell in enumerate(cells):
        try:
            exec(compile(cell, f"<ipython-input-{number}>", "exec"), space)  # noqa: S102 - a notebook
        except (SyntaxError, ZeroDivisionError):
            continue
    return space["train"]
