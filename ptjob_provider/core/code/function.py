"""Extract a function from its file, with everything at the file's top level that it uses, so that it runs alone.

Globals that are plain data travel with the value that they have at the call; imports, functions and classes travel as
source; loggers, devices, dtypes and paths are rebuilt; everything else is refused by its name.

The source is the file with all other lines emptied, so that tracebacks have the file's line numbers. A notebook is its
cells, in the order in which they ran. Decorators of Airflow and of this package, and those above them, do not travel.
Names in annotations travel if they can. Variables of functions around the function are its globals in the job.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import re
import symtable
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, GenericAlias, ModuleType, UnionType
from typing import TYPE_CHECKING, Any, NoReturn

from ptjob_provider.core.code.modules import module_sources
from ptjob_provider.core.code.values import encoded, examined, is_a
from ptjob_provider.core.errors import InvalidSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

_ALLOWED = "allowed: arguments, and imports, functions, classes and plain data at the top level of its file"
_FRAMEWORKS = ("airflow", "ptjob_provider")
_QUIET = {*_FRAMEWORKS, "kfp", "IPython"}
"""Packages whose calls at the top level are not meant for the job."""
_KNOWN = frozenset((*dir(builtins), "__name__", "__doc__", "__package__", "__spec__", "__loader__", "__builtins__"))
_ENVIRONMENT = {"environ", "getenv", "getpass", "__file__"}
_DEVICES = {"is_available", "device_count", "current_device", "current_accelerator"}
_MOST_CALLS = 10
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)
_ASSIGNMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign, getattr(ast, "TypeAlias", ast.Assign))  # Python 3.12
_STATEMENTS = (*_DEFINITIONS, *_IMPORTS, *_ASSIGNMENTS, ast.Expr, ast.Delete)
_NAMED = (type, ModuleType, BuiltinFunctionType)
_IS_NOTEBOOK = {"In", "get_ipython"}
_NOTHING = object()
_TEXT = re.compile(r"""'([^'\\]|\\.)*'|"([^"\\]|\\.)*\"""")
"""Texts, which may be secrets."""

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
    if names.keys() >= _IS_NOTEBOOK and not Path(code.co_filename).exists():
        file = _File(_notebook(names["In"]), "<notebook>", names, name, 0)
    else:
        linecache.checkcache(code.co_filename)
        text = "".join(linecache.getlines(code.co_filename, names))
        if not text:
            _refuse(name, "its source", "is not there: exec or a shell made it", "define the function in a file")
        file = _File(text, code.co_filename, names, name, code.co_firstlineno)
    for bound in (*file.binds.values(), *file.changes.values()):
        bound.difference_update(code.co_freevars)  # the top level has others
    return file.source(modules=modules, has_folder=has_folder)


def _checked_name(function: Any) -> str:
    name = getattr(function, "__qualname__", "") or repr(function)
    if not callable(function):
        _refuse(name, name, f"is a {type(function).__name__}", "pass the function itself, and its arguments after it")
    if not inspect.isfunction(function):
        what = "a method" if inspect.ismethod(function) else f"a {type(function).__name__}"
        _refuse(name, name, f"is {what}", "define it by `def` at the top level, and pass the rest as arguments")
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
    """Return a notebook's cells, in the order in which they ran, as one file without cells that are not Python."""
    texts, futures = [], set()
    for cell in cells:
        try:
            tree = ast.parse(cell)
            cell = _below_magic(tree) or cell  # noqa: PLW2901 - the same cell
            tree = ast.parse(cell)
        except SyntaxError:
            continue
        lines = cell.split("\n")
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.module == "__future__":
                futures.add(ast.unparse(node))
                lines[node.lineno - 1 : node.end_lineno] = [""] * len(_numbers(node))
        texts.append("\n".join(lines))
    return "\n".join([*sorted(futures), *texts])


def _below_magic(tree: ast.Module) -> str:
    """Return the code below `%%time` or `%%capture`, which IPython passes to a call as a text; "" for other cells."""
    match tree.body:
        case [ast.Expr(ast.Call(ast.Attribute(attr="run_cell_magic"), [ast.Constant("time" | "capture"), _, code]))]:
            return str(ast.literal_eval(code))
    return ""


# --- the file


class _File:
    """A file's text, and what a function needs of it.

    Attributes:
        data: the globals that travel with their values.
        kept: the statements that travel.
        launching: names of the file's functions that start the job.
    """

    def __init__(self, text: str, file: str, values: Mapping[str, Any], name: str, line: int) -> None:
        self.lines = text.split("\n")
        self.tree = ast.parse(text)
        self.file = file
        self.values = values
        self.name = name
        self.entry = self._find_function(line)
        self.imports = [node for node in ast.walk(self.tree) if isinstance(node, _IMPORTS)]
        self.frameworks = self._names_of(_FRAMEWORKS)
        self.asking = _ENVIRONMENT | self._names_of(_FRAMEWORKS[:1])
        self.literals = {node.value for node in ast.walk(self.tree) if isinstance(node, ast.Constant)}
        self.defined = [node for node in self.tree.body if isinstance(node, _DEFINITIONS)]
        self.launching = {name, *(node.name for node in self.defined if self.frameworks & _words(node))}
        for node in ast.walk(self.tree):
            decorators: list[ast.expr] = getattr(node, "decorator_list", [])
            while any(_root(each) in self.frameworks for each in decorators):
                del decorators[0]
        self.binds = {node: _binds(node) for node in self.tree.body}
        self.changes = {node: _changed(node) for node in self.tree.body}
        self.data: dict[str, Any] = {}
        self.kept: list[ast.stmt] = [self.entry]
        self._visited = {name}

    def _find_function(self, line: int) -> _Function:
        """Return the definition at the line; for line 0 the last one at the top level, else the last one."""
        named = [each for each in ast.walk(self.tree) if isinstance(each, _Function) and each.name == self.name]
        matching = [each for each in named if line in (0, _first_line(each))]
        if not matching:
            _refuse(self.name, self.file, "has changed since it was loaded", "load it again")
        return max(matching, key=lambda each: (not each.col_offset, each.lineno))

    def _names_of(self, packages: Sequence[str]) -> set[str]:
        """Return the names that the file imports from packages, also inside functions, and other names of them."""
        names = {name for node in self.imports if _origin(node) in packages for name in _imported(node)}
        assigned = [node for node in self.tree.body if isinstance(node, ast.Assign) and _root(node.value) in names]
        return names | {target.id for node in assigned for target in node.targets if isinstance(target, ast.Name)}

    def source(self, *, modules: Sequence[str], has_folder: bool) -> FunctionSource:
        self._collect()
        self._check_order()
        shared = Counter(number for node in self.tree.body for number in _numbers(node))
        lines: dict[int, str] = {}
        for node in sorted(self.kept, key=lambda node: node.col_offset):
            if node is self.entry or all(shared[number] == 1 for number in _numbers(node)):
                lines |= {number: self.lines[number - 1] for number in _numbers(node)}
            else:
                lines[node.lineno] = "; ".join(filter(None, (lines.get(node.lineno), ast.unparse(node))))
        if self.lines[self.entry.lineno - 1].lstrip("\f")[:1].isspace():
            lines[_first_line(self.entry) - 1] = "if True:"
        text = "\n".join(lines.get(number, "") for number in range(1, max(lines) + 1)) + "\n"
        package = str(self.values.get("__package__") or "")
        places = {"file": self.file, "package": package}
        sources = module_sources(modules, text, self.name, **places, has_folder=has_folder)
        kept = {"values": encoded(self.data), "notice": self._notice()}
        return FunctionSource(name=self.name, **places, text=text, modules=sources, **kept)

    def _collect(self) -> None:
        """Find what travels.

        Raises:
            InvalidSpec: the function uses a name that cannot travel.
        """
        futures = [node for node in self.tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
        is_lazy = any("annotations" in _imported(node) for node in futures)
        for node in self.kept:  # the loop appends to the list
            for name in sorted(_uses(node)):
                self._need(name, node)
            for name in _hinted(node):
                with suppress(*[InvalidSpec] if is_lazy or name not in self.values else []):
                    self._need(name, node)
        self.kept += futures

    def _need(self, name: str, user: ast.stmt) -> None:
        touching = [node for node, bound in self.binds.items() if name in bound | self.changes[node]]
        if name in self._visited or (name in _KNOWN and not touching):
            return
        binding = [node for node in self.tree.body if {name, "*"} & self.binds[node]]
        node = max(binding, key=lambda each: (name in self.binds[each], each.lineno), default=None)
        is_data, why = self._route(name, node, touching)
        if why:
            line = self.lines[user.lineno - 1].strip()
            via = "" if user is self.entry else f" (used in line {user.lineno}: {line:.80})"
            _refuse(self.name, f"{name!r}{via}", why, "pass it as an argument, or put it into the function")
        self._visited.add(name)
        if is_data:
            self.data[name] = self.values[name]
        elif node:
            self.kept += [each for each in (node, *self._changing(name, node)) if each not in self.kept]

    def _changing(self, name: str, node: ast.stmt) -> list[ast.stmt]:
        """Return the statements that change a function or class of the file in place."""
        own = self.changes if isinstance(node, _DEFINITIONS) else {}
        return [each for each, names in own.items() if name in names and isinstance(each, _STATEMENTS)]

    def _route(self, name: str, node: ast.stmt | None, touching: Sequence[ast.stmt]) -> tuple[bool, str]:
        """Return whether a global travels with its value, rather than as a statement, and why it cannot travel."""
        value = self.values.get(name, _NOTHING)
        at = f"(line {node.lineno})" if node else f"(not defined in {self.file})"
        foreign, unsent = examined(name, value, self.literals)
        words = set().union(*(_words(each) for each in touching if isinstance(each, (*_ASSIGNMENTS, ast.Expr))))
        is_device = is_a(value, "torch.device")
        if words & _DEVICES and isinstance(node, ast.Assign) and isinstance(value, (str, int)):
            is_device = len(touching) == 1  # "cuda" here may be "cpu" there
        is_import = node is not None and _is_import(node)
        is_source = is_import or is_device or isinstance(node, _DEFINITIONS)
        if is_import and not foreign and not unsent and isinstance(value, (list, set, dict)):
            is_source = False  # the file may have changed it
        if name == "__file__":
            return False, "is a path of this machine"
        if (is_device or not (foreign or is_source)) and words & self.asking:
            return False, f"comes from {min(words & self.asking)!r} {at}, which is another one in the job"
        if not (foreign or is_source):
            depends = f"depends on the devices of this machine {at}" if words & _DEVICES else ""
            return True, unsent or depends
        if value is _NOTHING and not isinstance(node, (*_DEFINITIONS, *_IMPORTS)):
            is_set = any(isinstance(each, ast.Global) and name in each.names for each in ast.walk(self.tree))
            return False, "" if is_set and not node else f"has no value {at}"
        if node is None or not (is_source or _is_definition(value)):
            return False, f"is not plain data: {foreign} {at}"
        return False, self._why_not_source(name, node)

    def _why_not_source(self, name: str, node: ast.stmt) -> str:
        at = f"(line {node.lineno})"
        if node is not self.entry and node.lineno <= self.entry.lineno <= (node.end_lineno or 0):
            return f"is made around the function {at}"
        if not isinstance(node, _STATEMENTS) and not _is_import(node):
            return f"is bound in the body of a `{type(node).__name__.lower()}` {at}"
        if isinstance(node, _IMPORTS) and name in self.frameworks:
            return f"is imported from {_origin(node)} {at}, which the training's image does not have"
        return ""

    def _check_order(self) -> None:
        """Refuse data that is read when a function or class is defined, and that a later statement changes."""
        for node in self.kept:
            early = set(_early(node))
            early.update(*(_uses(each) for each in self.kept if isinstance(each, _DEFINITIONS) and each.name in early))
            before = {ast.dump(each) for each in self.tree.body if each.lineno < node.lineno and _is_constant(each)}
            for other in self.tree.body:
                if other.lineno <= node.lineno or ast.dump(other) in before:  # a cell that ran again
                    continue
                later = self.binds[other] | self.changes[other] | self._passed(other)
                for name in early & self.data.keys() & later:
                    why = f"is read when line {node.lineno} runs, and changed in line {other.lineno}"
                    _refuse(self.name, repr(name), why, "change it before, or pass it as an argument")

    def _passed(self, node: ast.stmt) -> set[str]:
        """Return the names of lists, sets and maps that a call passes to a function, which may change them."""
        passed = _words(node) if _acts(self.values.get(_called(node))) else ()
        return {name for name in passed if isinstance(self.data.get(name), (list, set, dict, bytearray))}

    def _notice(self) -> str:
        """Return a sentence about the calls at the top level, and settings of modules, that the job does not run."""
        found = {}
        others = [node for node in self.tree.body if node not in [*self.kept, *self.defined]]
        for node in (each for other in others for each in _statements(other) if isinstance(each, _STATEMENTS)):
            roots = () if self.launching & _words(node) or self._passed(node) else {_called(node), *_changed(node)}
            if any(_acts(self.values.get(root)) for root in roots):
                text = _TEXT.sub("…", ast.unparse(node))
                found[f"{text:.80}"] = f"{text:.80} (line {node.lineno})"
        listed = ", ".join([*[*found.values()][:_MOST_CALLS], *["…"][: len(found) - _MOST_CALLS]])
        return f"function {self.name}: {listed} is not run in the job; call it in the function" if found else ""


def _acts(value: Any) -> bool:
    """Return whether a call of the value may matter to a job: a function, class, module or logger of its packages."""
    package = str(getattr(value, "__module__", None) or getattr(value, "__name__", "")).partition(".")[0]
    return package not in _QUIET and (isinstance(value, (*_NAMED, FunctionType)) or is_a(value, "logging.Logger"))


def _is_definition(value: Any) -> bool:
    """Return whether an assigned value is a function, class, type or module."""
    is_type = isinstance(value, (*_NAMED, GenericAlias, UnionType)) or type(value).__module__ == "typing"
    return is_type or (isinstance(value, FunctionType) and not value.__closure__)


# --- the syntax tree


def _symbols(node: ast.stmt) -> list[symtable.Symbol]:
    """Return the names of the top level, and the module's names in functions and classes, without annotations."""
    text = f"from __future__ import annotations\n{ast.unparse(node)}"
    top, *inner = _tables(symtable.symtable(text, "statement", "exec"))
    return [*top.get_symbols(), *(each for table in inner for each in table.get_symbols() if each.is_global())]


def _tables(table: symtable.SymbolTable) -> list[symtable.SymbolTable]:
    return [table, *(inner for child in table.get_children() for inner in _tables(child))]


def _binds(node: ast.stmt) -> set[str]:
    """Return the names that a statement binds at the top level; `*` for all names of a module."""
    if isinstance(node, _DEFINITIONS):
        return {node.name}
    assigned = {symbol.get_name() for symbol in _symbols(node) if symbol.is_assigned()}
    return assigned.union(*(_imported(each) for each in _statements(node) if isinstance(each, _IMPORTS)))


def _uses(node: ast.stmt) -> set[str]:
    """Return the module's names that a statement reads, also inside its functions and classes."""
    return {symbol.get_name() for symbol in _symbols(node) if symbol.is_referenced()}


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield a statement and those in it, but not those in functions and classes."""
    if isinstance(node, ast.stmt):
        yield node
    if not isinstance(node, _DEFINITIONS):
        for child in ast.iter_child_nodes(node):
            yield from _statements(child)


def _early(node: ast.AST) -> Iterator[str]:
    """Yield the names that are read when a statement runs, rather than when its functions are called."""
    if isinstance(node, ast.Name):
        yield node.id
    later = node.body if isinstance(node, (_Function, ast.Lambda)) else []
    for child in ast.iter_child_nodes(node):
        if child is not later and child not in (later if isinstance(later, list) else ()):
            yield from _early(child)


def _hinted(node: ast.AST) -> Iterator[str]:
    """Yield each name in an annotation, also in texts."""
    hints = (getattr(each, name, None) for each in ast.walk(node) for name in ("annotation", "returns"))
    for each in (inner for hint in hints if hint for inner in ast.walk(hint)):
        if isinstance(each, ast.Name):
            yield each.id
        elif isinstance(each, ast.Constant) and isinstance(each.value, str):
            with suppress(SyntaxError):
                yield from _words(ast.parse(each.value, mode="eval"))


def _words(node: ast.AST) -> set[str]:
    """Return the names of variables and attributes."""
    names = (getattr(each, "id", getattr(each, "attr", "")) for each in ast.walk(node))
    return {name for name in names if name}


def _changed(node: ast.stmt) -> set[str]:
    """Return the names whose values a statement changes in place: by an item, an attribute, a method or a decorator."""
    changed = [each.func if isinstance(each, ast.Call) else each for each in getattr(node, "decorator_list", ())]
    for each in _statements(node):
        targets = [*getattr(each, "targets", ()), getattr(each, "target", None)]
        changed += [inner for target in targets if target for inner in ast.walk(target)]
        if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call):
            changed.append(each.value.func)
    return {_root(each) for each in changed if isinstance(each, (ast.Attribute, ast.Subscript))}


def _called(node: ast.stmt) -> str:
    """Return the name at the beginning of a call that is a statement; "" for other statements."""
    return _root(node.value) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) else ""


def _numbers(node: ast.stmt) -> range:
    return range(_first_line(node), (node.end_lineno or 0) + 1)


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])


def _root(node: ast.AST) -> str:
    """Return the name at the beginning of an expression such as `a.b[0].c()`; "" if there is none."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _is_import(node: ast.stmt) -> bool:
    """Return whether the statement only imports, or is a `try` or `if` that only imports and assigns constants."""
    inner = [each for each in _statements(node) if not isinstance(each, (ast.Try, ast.If, ast.Pass))]
    imports = [each for each in inner if isinstance(each, _IMPORTS)]
    return bool(imports) and len(imports) + sum(map(_is_constant, inner)) == len(inner)


def _is_constant(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and not _words(node.value)


def _imported(node: ast.Import | ast.ImportFrom) -> set[str]:
    return {alias.asname or alias.name.partition(".")[0] for alias in node.names}


def _origin(node: ast.Import | ast.ImportFrom) -> str:
    """Return the package of an import; "" for a relative one."""
    name = node.names[0].name if isinstance(node, ast.Import) else "." * node.level + (node.module or "")
    return name.partition(".")[0]
