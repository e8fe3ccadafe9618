"""Find the sources of packages that travel with a function, and imports that would fail in the pod.

Nothing is imported: the import system's finders find a package, and only its `.py` files are read.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from ptjob_provider.core.errors import InvalidSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from importlib.machinery import ModuleSpec

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
        spec = _spec(name, file) if name.isidentifier() else None
        places = [Path(place) for place in _places(spec)]
        if not places:
            allowed = "allowed: names of packages and modules of the top level that this process could import"
            raise InvalidSpec.of(f"function {function}: modules", name, allowed)
        for path in (path for place in places for path in _files(place)):
            if path.suffix in _BINARY:
                allowed = "allowed: pure Python; install the package in the image"
                raise InvalidSpec.of(f"function {function}: modules", f"{name} ({path.name})", allowed)
            base = next(place for place in places if path == place or place in path.parents).parent
            sources[path.relative_to(base).as_posix()] = path.read_text(encoding="utf-8")
    travelling = {path.partition("/")[0].removesuffix(".py") for path in sources}
    checked = {} if has_folder else {file: text, **sources}
    for of, source in checked.items():
        for name, line in _imports(source, package if of == file else ""):
            if name not in travelling and _is_local(_spec(name, file), name):
                raise InvalidSpec(
                    f"function {function}: {name!r}, imported in {of}, line {line}, is a file of this machine, which is"
                    " not allowed; allowed: the standard library, packages of the image, and modules that travel; write"
                    f' modules=["{name}"], or code="." for the whole folder'
                )
    return sources


def _imports(text: str, package: str) -> Iterator[tuple[str, int]]:
    """Yield the top-level name of each import, with its line; relative imports are the package's."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((alias.name.partition(".")[0], node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            name = package if node.level else node.module or ""
            if name:
                yield name.partition(".")[0], node.lineno


def _spec(name: str, file: str) -> ModuleSpec | None:
    try:
        spec = importlib.util.find_spec(name)
    except (ValueError, ImportError):
        return None
    return spec or PathFinder.find_spec(name, [str(Path(file).parent)])


def _places(spec: ModuleSpec | None) -> list[str]:
    """Return the folders of a package, or the file of a module; empty for a module without a file."""
    if spec is None:
        return []
    if spec.submodule_search_locations is not None:
        return [place for place in spec.submodule_search_locations if Path(place).is_dir()]
    return [spec.origin] if spec.has_location and spec.origin else []


def _is_local(spec: ModuleSpec | None, name: str) -> bool:
    """Return whether a module is a file of neither the standard library nor an installed distribution."""
    places = _places(spec)
    if name in sys.stdlib_module_names or not places or _INSTALLED & set(Path(places[0]).parts):
        return False
    try:
        metadata.distribution(name)  # installed from its folder: `pip install --editable`
    except metadata.PackageNotFoundError:
        return True
    return False


def _files(place: Path) -> list[Path]:
    if place.is_file():
        return [place]
    wanted = {".py", *_BINARY}
    return sorted(path for path in place.rglob("*") if path.suffix in wanted and path.is_file())
