"""Measure the size and shape of the product's code: `python scripts/measure_code.py [FOLDER]`.

A line of code is a line with code on it, at unchanged formatting: docstrings, comments and blank lines do not count. An
importer of a module is another file of the same folder that imports the module or a name from it.
"""

from __future__ import annotations

import ast
import io
import re
import statistics
import sys
import tokenize
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PRODUCT = Path(__file__).parents[1] / "ptjob_provider"
_NO_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}
_COMMENT = re.compile(r"(?m)^[^\n\"']*# (?!noqa|type:|ruff:)\S")
_SMALL = 100
"""Total lines of a file below which it counts as small."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Measures of one file.

    Attributes:
        module: dotted name of the module.
        lines: number of all lines.
        code: number of lines of code.
        comments: number of comments, without those that only tools read.
        functions: lines of code of each function, by name.
        imports: dotted names that the file imports: modules, and names that may be modules.
    """

    module: str
    lines: int
    code: int
    comments: int
    functions: Mapping[str, int]
    imports: frozenset[str]


def read(path: Path, root: Path) -> Source:
    """Return the measures of a file below `root.parent`."""
    text = path.read_text()
    tree = ast.parse(text)
    code = _lines_of_code(text, tree)
    parts = path.relative_to(root.parent).with_suffix("").parts
    module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    functions = {
        f"{module}.{node.name}": sum(node.lineno <= line <= (node.end_lineno or 0) for line in code)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    return Source(
        module=module,
        lines=text.count("\n"),
        code=len(code),
        comments=len(_COMMENT.findall(text)),
        functions=functions,
        imports=frozenset(_imports(tree)),
    )


def _lines_of_code(text: str, tree: ast.Module) -> set[int]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = {line for token in tokens if token.type not in _NO_CODE for line in range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def importers(sources: list[Source]) -> Counter[str]:
    """Return the number of other files that import each module; a package counts only if none of its modules does."""
    known = {source.module for source in sources}
    counts: Counter[str] = Counter(dict.fromkeys(known, 0))
    for source in sources:
        modules = source.imports & known
        imported = {name for name in modules if not any(other.startswith(f"{name}.") for other in modules)}
        counts.update(imported - {source.module})
    return counts


def report(sources: list[Source]) -> Iterator[str]:
    """Yield a line for each figure."""
    used = importers(sources)
    functions = Counter({name: size for source in sources for name, size in source.functions.items()})
    longest, size = functions.most_common(1)[0]
    small = sum(source.lines < _SMALL for source in sources)
    single = [source for source in sources if used[source.module] == 1]
    yield f"files                      {len(sources):>7,}"
    yield f"  below {_SMALL} lines          {small:>7,}"
    yield f"  with one importer        {len(single):>7,}"
    yield f"lines                      {sum(source.lines for source in sources):>7,}"
    yield f"lines of code              {sum(source.code for source in sources):>7,}"
    yield f"  comments in 100 of them  {100 * sum(s.comments for s in sources) / sum(s.code for s in sources):>7.1f}"
    yield f"imports between files      {sum(used.values()):>7,}"
    yield f"functions                  {len(functions):>7,}"
    yield f"  median, lines of code    {statistics.median(functions.values()):>7,.0f}"
    yield f"  longest                  {size:>7,}  {longest}"


def main() -> None:
    """Print the figures of the product, or of the given folder."""
    root = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else _PRODUCT
    sources = [read(path, root) for path in sorted(root.rglob("*.py"))]
    for line in report(sources):
        print(line)


if __name__ == "__main__":
    main()
