"""Extract a function from its file, with everything at the file's top level that it uses, so that it runs alone.

Globals that are plain data travel with the value that they have at the call; imports, functions and classes travel as
source; loggers, devices, dtypes and paths are rebuilt; everything else is refused by its name.

The source is the file with all other lines emptied, so that tracebacks have the file's line numbers. A notebook is its
cells, in the order in which they ran. Decorators of Airflow and of this package, and those above them, do not travel.
Names in annotations travel if they have a value. Variables of functions around the function are its globals in the job.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import re
import symtable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, GenericAlias, ModuleType, UnionType
from typing import TYPE_CHECKING, Any, NoReturn

from ptjob_provider.core.code.modules import imports, module_sources
from ptjob_provider.core.code.values import encoded, is_a, why_it_stays
from ptjob_provider.core.errors import InvalidSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

_ALLOWED = "allowed: arguments, and imports, functions, classes and plain data at the top level of its file"
_FRAMEWORKS = ("airflow", "ptjob_provider")
_QUIET = {*_FRAMEWORKS, "kfp", "IPython"}
"""Packages whose calls at the top level are not meant for the job."""
_KNOWN = frozenset((*dir(builtins), "__name__", "__doc__", "__package__", "__spec__", "__loader__", "__builtins__"))
_DEVICES = {"is_available", "device_count", "current_device", "current_accelerator"}
_MACHINE = {"environ", "getenv", "getpass", "__file__", *_DEVICES}
_MOST_CALLS = 10
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)
_ASSIGNMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign, getattr(ast, "TypeAlias", ast.Assign))  # Python 3.12
_SIMPLE = (*_IMPORTS, *_ASSIGNMENTS, ast.Expr, ast.Delete)
_STATEMENTS = (*_DEFINITIONS, *_SIMPLE)
_NAMED = (type, ModuleType, BuiltinFunctionType, FunctionType, GenericAlias, UnionType)
_MUTABLE = (list, set, dict, bytearray)
_TEXT = re.compile(r"""'([^'\\]|\\.)*'|"([^"\\]|\\.)*\"""")
"""Texts, which may be secrets."""
_NAME = re.compile(r"(?<![\w.])\w+")
"""Names that are not attributes."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True)
class FunctionSource:
    """Source of one function, ready to run alone.

    Attributes:
        name: the function's name.
        file: the path of the author's file, for tracebacks.
        text: the file's lines that the function needs, each at its place.
        package: the package to which relative imports are relative; "" for none.
        modules: source of its packages, by path below a folder of `sys.path`.
        values: the globals that travel with their values; see `values.encoded`.
        notice: what the top level does, and the job does not; "" for nothing.
    """

    name: str
    file: str
    text: str
    package: str = ""
    modules: Mapping[str, str] = field(default_factory=dict)
    values: str = ""
    notice: str = ""


def from_function(
    function: Callable[..., Any], *, modules: Sequence[str] = (), has_folder: bool = False
) -> FunctionSource:
    """Return a function's source.

    Args:
        function: defined by `def`, in a file or a notebook.
        modules: packages and modules that it imports and that travel with it.
        has_folder: its folder travels as well (`code`), so that it may import from there.

    Raises:
        InvalidSpec: the function cannot run alone; the text names the variable.
    """
    function = inspect.unwrap(function)
    name = _checked_name(function)
    code, names = function.__code__, function.__globals__
    with suppress(ValueError):  # a variable of the function around it has no value yet
        names = {**names, **inspect.getclosurevars(function).nonlocals}
    file, line = code.co_filename, code.co_firstlineno
    if names.keys() >= {"In", "get_ipython"} and not Path(file).exists():
        file, text, line = "<notebook>", _notebook(names["In"]), 0
    else:
        linecache.checkcache(file)
        text = "".join(linecache.getlines(file, names))
    if not text:
        _refuse(name, "its source", "is not there: exec or a shell made it", "define the function in a file")
    found = _File(text, file, names, name, line, own=code.co_freevars)
    return found.source(modules=modules, has_folder=has_folder)


def _checked_name(function: Any) -> str:
    name = getattr(function, "__qualname__", "") or repr(function)
    if not inspect.isfunction(function):
        what = "a method" if inspect.ismethod(function) else f"a {type(function).__name__}"
        _refuse(name, name, f"is {what}", "pass the function itself, defined by `def`, and pass it as an argument")
    own = name.rpartition("<locals>.")[2]
    if own == "<lambda>":
        _refuse(name, name, f"is a lambda (line {function.__code__.co_firstlineno})", "define it by `def`")
    if "." in own:
        _refuse(name, own, "is a method", "move it to the top level, and pass the object's parts as arguments")
    if inspect.iscoroutinefunction(function):
        _refuse(name, own, "is a coroutine", "define it by `def`, and call asyncio.run in it")
    if inspect.isgeneratorfunction(function):
        _refuse(name, own, "is a generator, and nothing would iterate over it", "return a list")
    return own


def _refuse(function: str, variable: str, why: str, advice: str) -> NoReturn:
    raise InvalidSpec(f"function {function}: {variable} {why}, which is not allowed; {_ALLOWED}; {advice}")


def _notebook(cells: Iterable[str]) -> str:
    """Return a notebook's cells, in the order in which they ran, as one file without cells that are not Python.

    `%%time` and `%%capture` pass their code to a call as a text. The first line stays empty; see `_File.source`.
    """
    texts = [""]
    for cell in cells:
        with suppress(SyntaxError):
            match ast.parse(cell).body:
                case [ast.Expr(ast.Call(_, [ast.Constant("time" | "capture"), _, ast.Constant(str(code))]))]:
                    cell = code  # noqa: PLW2901 - the same cell
                    ast.parse(cell)
            texts.append(cell)
    return "\n".join(texts)


# --- the file


class _File:
    """A file's text, and what a function needs of it.

    Attributes:
        binds: the names that each statement of the top level binds.
        changes: the names whose values it changes in place.
        data: the globals that travel with their values.
        kept: the statements that travel.
        launching: names of the file's functions that start the job.
    """

    def __init__(
        self, text: str, file: str, values: Mapping[str, Any], name: str, line: int, *, own: Collection[str]
    ) -> None:
        self.lines = text.split("\n")
        self.tree = ast.parse(text)
        self.file = file
        self.values = values
        self.name = name
        self.entry = self._find_function(line)
        self.frameworks = self._names_of(*_FRAMEWORKS)
        self.asking = _MACHINE | self._names_of(_FRAMEWORKS[0])
        nodes = [*ast.walk(self.tree)]
        self.literals = {node.value for node in nodes if isinstance(node, ast.Constant)}
        self.made = {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
        defined = [node for node in self.tree.body if isinstance(node, _DEFINITIONS)]
        self.launching = {name, *(node.name for node in defined if self.frameworks & _words(node))}
        for node in nodes:
            decorators: list[ast.expr] = getattr(node, "decorator_list", [])
            while any(_root(each) in self.frameworks for each in decorators):
                del decorators[0]
        self.binds = {node: _binds(node).difference(own) for node in self.tree.body}  # the top level has others
        self.changes = {node: self._changed(node).difference(own) for node in self.tree.body}
        self.data: dict[str, Any] = {}
        self.kept: list[ast.stmt] = [self.entry]
        self._visited = {name}

    def _find_function(self, line: int) -> _Function:
        """Return the definition at the line; for line 0 the last one at the top level, else the last one."""
        named = [each for each in ast.walk(self.tree) if isinstance(each, _Function) and each.name == self.name]
        matching = [each for each in named if line in (0, min(_numbers(each)))]
        if not matching:
            _refuse(self.name, self.file, "has changed since it was loaded", "load it again")
        return max(matching, key=lambda each: (not each.col_offset, each.lineno))

    def _names_of(self, *packages: str) -> set[str]:
        """Return the names that the file imports from packages, also inside functions, and other names of them."""
        names = {name for package, name, _ in imports(self.tree) if package in packages}
        assigned = [node for node in self.tree.body if isinstance(node, ast.Assign) and _root(node.value) in names]
        return names.union(*map(_binds, assigned))

    def source(self, *, modules: Sequence[str], has_folder: bool) -> FunctionSource:
        """Return what travels.

        Raises:
            InvalidSpec: the function uses a name that cannot travel.
        """
        futures = [node for node in self.tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
        for node in self.kept:  # the loop appends to the list
            for name in sorted(_uses(node) | (_hinted(node) & self.values.keys())):
                self._need(name, node)
        self._check_order()
        lines = {1: "; ".join(map(ast.unparse, futures))}  # in a notebook, other statements may be above them
        for node in sorted(self.kept, key=lambda node: node.col_offset):
            if isinstance(node, _SIMPLE):  # others may share its line
                lines[node.lineno] = "; ".join(filter(None, (lines.get(node.lineno), ast.unparse(node))))
            else:
                lines |= {number: self.lines[number - 1] for number in _numbers(node)}
        if self.lines[self.entry.lineno - 1].lstrip("\f")[:1].isspace():
            lines[min(_numbers(self.entry)) - 1] = "if True:"
        text = "\n".join(lines.get(number, "") for number in range(1, max(lines) + 1)) + "\n"
        places = {"file": self.file, "package": str(self.values.get("__package__") or "")}
        sources = module_sources(modules, text, self.name, **places, has_folder=has_folder)
        kept = {"values": encoded(self.data), "notice": self._notice()}
        return FunctionSource(name=self.name, **places, text=text, modules=sources, **kept)

    def _need(self, name: str, user: ast.stmt) -> None:
        touching = self._touching(name)
        if name in self._visited or (name in _KNOWN and not touching):
            return
        binding = [node for node in self.tree.body if {name, "*"} & self.binds[node]]
        node = max(binding, key=lambda each: (name in self.binds[each], each.lineno), default=None)
        is_data, why = self._route(name, node, touching)
        if why:
            line = self.lines[user.lineno - 1].strip()
            via = "" if user is self.entry else f" (used in line {user.lineno}: {line:.80})"
            at = f"(line {node.lineno})" if node else f"(not defined in {self.file})"
            _refuse(self.name, f"{name!r}{via}", f"{why} {at}", "pass it as an argument, or put it into the function")
        self._visited.add(name)
        if is_data:
            self.data[name] = self.values[name]
        elif node:
            changing = [each for each in touching if isinstance(node, _DEFINITIONS) and name in self.changes[each]]
            travelling = [node, *(each for each in changing if isinstance(each, _STATEMENTS))]
            self.kept += [each for each in travelling if each not in self.kept]

    def _touching(self, name: str) -> list[ast.stmt]:
        return [node for node in self.tree.body if name in self.binds[node] | self.changes[node]]

    def _route(self, name: str, node: ast.stmt | None, touching: Sequence[ast.stmt]) -> tuple[bool, str]:
        """Return whether a global travels with its value, rather than as a statement, and why it cannot travel."""
        value = self.values.get(name)
        if name not in self.values and not isinstance(node, (*_DEFINITIONS, *_IMPORTS)):
            return False, "" if name in self.made and not node else "has no value"
        why = why_it_stays(name, value, self.literals)
        evaluated = [each for each in touching if isinstance(each, _SIMPLE)]
        asked = self.asking & {name}.union(*map(_words, evaluated))
        is_device = is_a(value, "torch.device") or (bool(asked) and isinstance(value, (str, int)))
        is_device &= asked <= _DEVICES and len({ast.dump(each) for each in touching}) == 1
        is_source = isinstance(node, _DEFINITIONS) or is_device or _is_definition(value)
        if node and _is_import(node):
            is_source = bool(why) or not isinstance(value, _MUTABLE)  # the file may have changed a list or map
        if node and is_source:
            return False, self._why_not_source(name, node)
        if asked:
            return False, f"comes from this machine's {min(asked)!r}"
        return True, why

    def _why_not_source(self, name: str, node: ast.stmt) -> str:
        is_around = node is not self.entry and self.entry.lineno in _numbers(node)
        if is_around or not (isinstance(node, _STATEMENTS) or _is_import(node)):
            return "is bound by a statement that does not travel"
        packages = [package for package, bound, _ in imports(node) if bound == name and package in _FRAMEWORKS]
        return f"is imported from {packages[0]}, which the training's image does not have" if packages else ""

    def _check_order(self) -> None:
        """Refuse data that is read when a function or class is defined, and that a later statement changes."""
        for node in self.kept:
            early = _uses(node, early=True)
            early.update(*(_uses(each) for each in self.kept if isinstance(each, _DEFINITIONS) and each.name in early))
            for name in early & self.data.keys():
                touching = self._touching(name)
                before = [_dumped(each) for each in touching if each.lineno <= node.lineno]
                if touching and _dumped(touching[-1]) not in before[-1:]:
                    why = f"is read when line {node.lineno} runs, and changed in line {touching[-1].lineno}"
                    _refuse(self.name, repr(name), why, "change it before, or pass it as an argument")

    def _changed(self, node: ast.stmt) -> set[str]:
        """Return the names whose values a statement changes in place.

        It does so by an item, an attribute, a method, a decorator, or a call that gets a list, set or map.
        """
        changed = [each.func if isinstance(each, ast.Call) else each for each in getattr(node, "decorator_list", ())]
        passed: set[str] = set()
        for each in _statements(node):
            targets = [*getattr(each, "targets", ()), getattr(each, "target", None)]
            changed += [inner for target in targets if target for inner in ast.walk(target)]
            if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call):
                changed.append(each.value.func)
                passed |= _words(each) if _acts(self.values.get(_root(each.value))) else set()
        roots = {_root(each) for each in changed if isinstance(each, (ast.Attribute, ast.Subscript))}
        return roots | {name for name in passed if isinstance(self.values.get(name), _MUTABLE)}

    def _notice(self) -> str:
        """Return a sentence about the calls at the top level, and settings of modules, that the job does not run."""
        found = {}
        others = [node for node in self.tree.body if node not in self.kept and not _is_for_scripts(node)]
        for node in (each for other in others for each in _statements(other) if isinstance(each, _SIMPLE)):
            changed = self._changed(node)
            called = _root(node.value) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) else ""
            is_apart = not (self.launching & _words(node) or changed & self.data.keys())
            if is_apart and any(_acts(self.values.get(root)) for root in {called, *changed}):
                text = _TEXT.sub("…", ast.unparse(node))
                found[f"{text:.80}"] = f"{text:.80} (line {node.lineno})"
        listed = ", ".join([*[*found.values()][:_MOST_CALLS], *["…"][: len(found) - _MOST_CALLS]])
        return f"function {self.name}: {listed} is not run in the job; call it in the function" if found else ""


def _is_for_scripts(node: ast.stmt) -> bool:
    """Return whether the statement is `if __name__ == "__main__":`, which is meant for the caller alone."""
    return isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"


def _acts(value: Any) -> bool:
    """Return whether a call of the value may matter to a job: a function, class, module or logger of its packages."""
    package = str(getattr(value, "__module__", None) or getattr(value, "__name__", "")).partition(".")[0]
    return package not in _QUIET and (isinstance(value, _NAMED) or is_a(value, "logging.Logger"))


def _is_definition(value: Any) -> bool:
    """Return whether an assigned value is a function, class, type or module."""
    is_named = isinstance(value, _NAMED) or type(value).__module__ == "typing"
    return is_named and not getattr(value, "__closure__", None)


# --- the syntax tree


def _symbols(node: ast.stmt, *, early: bool = False) -> list[symtable.Symbol]:
    """Return the names of the top level, and the module's names in functions and classes, without annotations.

    Args:
        node: a statement.
        early: leave out what runs when its functions are called.
    """
    tables = [symtable.symtable(f"from __future__ import annotations\n{ast.unparse(node)}", "statement", "exec")]
    symbols = [*tables[0].get_symbols()]
    for table in tables:  # the loop appends to the list
        inner = [each for each in table.get_children() if not (early and _is_called_later(each))]
        symbols += [symbol for each in inner for symbol in each.get_symbols() if symbol.is_global()]
        tables += inner
    return symbols


def _is_called_later(table: symtable.SymbolTable) -> bool:
    return isinstance(table, symtable.Function) and not table.get_name().strip("<>").endswith(("comp", "genexpr"))


def _binds(node: ast.stmt) -> set[str]:
    """Return the names that a statement binds at the top level; `*` for all names of a module."""
    bound = {symbol.get_name() for symbol in _symbols(node, early=True) if symbol.is_assigned() or symbol.is_imported()}
    return bound | ({"*"} & {name for _, name, _ in imports(node)})


def _uses(node: ast.stmt, *, early: bool = False) -> set[str]:
    """Return the module's names that a statement reads, also inside its functions and classes."""
    return {symbol.get_name() for symbol in _symbols(node, early=early) if symbol.is_referenced()}


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield a statement and those in it, but not those in functions and classes."""
    if isinstance(node, ast.stmt):
        yield node
    if not isinstance(node, _DEFINITIONS):
        for child in ast.iter_child_nodes(node):
            yield from _statements(child)


def _hinted(node: ast.AST) -> set[str]:
    """Return the names in annotations, also in texts."""
    hints = (getattr(each, name, None) for each in ast.walk(node) for name in ("annotation", "returns"))
    return {word for hint in hints if hint for word in _NAME.findall(ast.unparse(hint))}


def _words(node: ast.AST) -> set[str]:
    """Return the names of variables and attributes."""
    return {getattr(each, "id", getattr(each, "attr", "")) for each in ast.walk(node)} - {""}


def _numbers(node: ast.stmt) -> range:
    """Return the numbers of a statement's lines."""
    first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
    return range(first, (node.end_lineno or 0) + 1)


def _root(node: ast.AST) -> str:
    """Return the name at the beginning of an expression such as `a.b[0].c()`; "" if there is none."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _is_import(node: ast.stmt) -> bool:
    """Return whether the statement only imports, or is a `try` or `if` that only imports and assigns constants."""
    inner = (each for each in _statements(node) if not isinstance(each, (ast.Try, ast.If, ast.Pass)))
    return any(imports(node)) and all(isinstance(each, _IMPORTS) or _is_constant(each) for each in inner)


def _is_constant(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and not _words(node.value)


def _dumped(node: ast.stmt) -> ast.stmt | str:
    """Return a text of an assigned constant, as a cell that ran again has the same one; else the statement."""
    return ast.dump(node) if _is_constant(node) else node
