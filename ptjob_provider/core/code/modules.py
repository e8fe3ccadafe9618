"""Find the sources of packages that travel with a function, and imports that would fail in the pod.

Nothing is imported: the import system's finders find a package, and only its `.py` files are read.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from contextlib import suppress
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from ptjob_provider.core.errors import InvalidSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_INSTALLED = {"site-packages", "dist-packages"}
_BINARY = (".so", ".pyd")


def module_sources(
    names: Sequence[str], text: str, function: str, *, file: str, package: str, has_folder: bool
) -> dict[str, str]:
    """Return path → source of these packages and modules, after checking what the sources import.

    Args:
        names: names of top-level packages and modules.
        text: the function's source.
        function: the function's name, for errors.
        file: the function's file; packages beside it are found, too.
        package: the package to which the function's relative imports are relative.
        has_folder: the function's folder travels as well.

    Raises:
        InvalidSpec: a module is not found, is not of the top level, or is not pure Python, or a source imports a file
            of this machine that does not travel; the text says how it could.
    """
    sources: dict[str, str] = {}
    for name in names:
        places = _places(name, file) if name.isidentifier() else []
        if not places:
            allowed = "allowed: names of packages and modules of the top level that this process could import"
            raise InvalidSpec.of(f"function {function}: modules", name, allowed)
        roots = {path: place.parent for place in places for path in (place, *place.rglob("*"))}
        for path in sorted(path for path in roots if path.suffix in (".py", *_BINARY) and path.is_file()):
            if path.suffix in _BINARY:
                allowed = "allowed: pure Python; install the package in the image"
                raise InvalidSpec.of(f"function {function}: modules", f"{name} ({path.name})", allowed)
            sources[path.relative_to(roots[path]).as_posix()] = path.read_text(encoding="utf-8")
    checked = {} if has_folder else {file: text, **sources}
    for of, source in checked.items():
        for origin, _, line in imports(ast.parse(source)):
            name = origin or (package.partition(".")[0] if of == file else "")
            if name not in names and _is_local(name, file):
                raise InvalidSpec(
                    f"function {function}: {name!r}, imported in {of}, line {line}, is a file of this machine, which is"
                    " not allowed; allowed: the standard library, packages of the image, and modules that travel; write"
                    f' modules=["{name}"], or code="." for the whole folder'
                )
    return sources


def imports(tree: ast.AST) -> Iterator[tuple[str, str, int]]:
    """Yield the top-level package, the name and the line of each import; the package of a relative one is ""."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                origin = alias.name if isinstance(node, ast.Import) else "." * node.level + (node.module or "")
                yield origin.partition(".")[0], alias.asname or alias.name.partition(".")[0], node.lineno


def _places(name: str, file: str) -> list[Path]:
    """Return the folders of a package, or the file of a module; empty for a module without a file."""
    spec = None
    with suppress(ValueError, ImportError):
        spec = importlib.util.find_spec(name)
    spec = spec or PathFinder.find_spec(name, [str(Path(file).parent)])
    found: Sequence[str | None] = (spec.submodule_search_locations or [spec.origin]) if spec else []
    return [Path(place) for place in found if place and Path(place).exists()]


def _is_local(name: str, file: str) -> bool:
    """Return whether a module is a file of neither the standard library nor an installed distribution."""
    places = _places(name, file) if name else []
    if name in sys.stdlib_module_names or not places or _INSTALLED & set(places[0].parts):
        return False
    with suppress(metadata.PackageNotFoundError):
        return not metadata.distribution(name)  # installed from its folder: `pip install --editable`
    return True
