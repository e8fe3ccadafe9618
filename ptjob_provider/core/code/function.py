"""Extract a function from its file, with everything at the file's top level that it uses, so that it runs alone.

The result is the file with all other lines emptied, so that tracebacks have the file's line numbers. What travels:

    travels                                            is refused; the error names the variable
    ------------------------------------------------   -----------------------------------------------------------
    imports, also in `try` and `if`; `import *`        names that are imported for type checkers only
    functions, classes, constants, and what they use   names bound in a loop, `with`, `if`, `match` or `try`
    statements that change these: `LAYERS.append(3)`   names that another function changes by `global`
    settings of imported modules: `random.seed(0)`
    functions that `@MODELS.register` adds to these
    the function's own decorators                      names of Airflow and of this package
    a notebook's cells, in the order they ran          names that the source does not have, or has with other values

Decorators of Airflow and of this package, and those above them, do not travel. Names in annotations travel if they can.
Other calls of imported modules, such as `torch.load("model.pt")` in a cell, are not needed, and do not travel.
"""

from __future__ import annotations

import ast
import builtins
import copy
import inspect
import linecache
import re
import symtable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ptjob_provider.core.code.modules import check_imports, module_sources
from ptjob_provider.core.errors import InvalidSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

_ALLOWED = "allowed: arguments, and imports, constants, functions and classes at the top level of its file"
_FRAMEWORKS = ("airflow", "ptjob_provider")
_KNOWN = frozenset((*dir(builtins), "__name__", "__doc__", "__package__", "__spec__", "__loader__", "__builtins__"))
_SETTING = re.compile(
    r"\w*seed(_all)?|set_\w+|use|append|insert|update|setdefault|filterwarnings|simplefilter|basicConfig"
)
"""Functions of imported modules that are called for their effect, such as `torch.manual_seed`, `sys.path.insert`."""
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_STATEMENTS = (
    *_DEFINITIONS,
    ast.Import,
    ast.ImportFrom,
    ast.Assign,
    ast.AnnAssign,
    ast.AugAssign,
    ast.Expr,
    ast.Delete,
)
_TYPE_ALIAS = getattr(ast, "TypeAlias", ast.AnnAssign)  # Python 3.12
_IS_NOTEBOOK = {"In", "get_ipython"}

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
    """

    name: str
    file: str
    text: str
    package: str = ""
    modules: Mapping[str, str] = field(default_factory=dict)


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
    if names.keys() >= _IS_NOTEBOOK and not Path(code.co_filename).exists():
        module, line = _Module(_notebook(names["In"]), "<notebook>", names), 0
    else:
        linecache.checkcache(code.co_filename)
        text = "".join(linecache.getlines(code.co_filename, names))
        if not text:
            _refuse(name, "its source", "is not there: exec or a shell made it", "define the function in a file")
        module, line = _Module(text, code.co_filename, names), code.co_firstlineno
    return _extracted(module, function, line, modules=modules, has_folder=has_folder)


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
                lines[node.lineno - 1 : node.end_lineno] = [""] * _height(node)
        texts.append("\n".join(lines))
    return "\n".join([*sorted(futures), *texts])


def _below_magic(tree: ast.Module) -> str:
    """Return the code below `%%time` or `%%capture`, which IPython passes to a call as a text; "" for other cells."""
    match tree.body:
        case [ast.Expr(ast.Call(ast.Attribute(attr="run_cell_magic"), [ast.Constant("time" | "capture"), _, code]))]:
            return str(ast.literal_eval(code))
    return ""


# --- names


@dataclass(kw_only=True)
class _Unit:
    """One statement, or several that share a line.

    Attributes:
        nodes: the statements, without decorators that do not travel.
        lines: the numbers of their lines, without those of such decorators.
        imported: the names that the file imports.
    """

    nodes: Sequence[ast.stmt]
    lines: Sequence[int]
    imported: set[str]

    @cached_property
    def table(self) -> symtable.SymbolTable:
        bare = [_without_annotations(node) for node in self.nodes]
        return symtable.symtable(ast.unparse(ast.Module(bare, [])), "unit", "exec")

    @cached_property
    def binds(self) -> set[str]:
        """Return the names that the unit binds at the top level, or whose values it changes there."""
        if len(self.nodes) == 1 and isinstance(self.nodes[0], _DEFINITIONS):
            return {self.nodes[0].name}
        symbols = self.table.get_symbols()
        bound = {symbol.get_name() for symbol in symbols if symbol.is_assigned() or symbol.is_imported()}
        return bound.union(*(_changed(node, self.imported) for node in self.nodes))

    @cached_property
    def uses(self) -> set[str]:
        """Return the module's names that the unit reads, also inside its functions and classes."""
        own = {symbol.get_name() for symbol in self.table.get_symbols() if symbol.is_referenced()}
        inner = (symbol for symbol in _inner(self.table) if symbol.is_global() and symbol.is_referenced())
        return own | {symbol.get_name() for symbol in inner}

    @cached_property
    def changes(self) -> set[str]:
        """Return the names that the unit's functions bind by `global`."""
        inner = (each for node in self.nodes for each in ast.walk(node))
        return {name for each in inner if isinstance(each, ast.Global) for name in each.names}

    @cached_property
    def registries(self) -> set[str]:
        """Return the names whose attributes are decorators of the unit: `MODELS` for `@MODELS.register("small")`."""
        decorators = [each for node in self.nodes for each in getattr(node, "decorator_list", ())]
        called = [each.func if isinstance(each, ast.Call) else each for each in decorators]
        return {_root(each) for each in called if isinstance(each, ast.Attribute)}

    @cached_property
    def annotations(self) -> list[tuple[set[str], bool]]:
        """Return the names in each annotation, and whether it is evaluated when the statement runs."""
        return [annotation for node in self.nodes for annotation in _annotations(node)]

    @property
    def is_star(self) -> bool:
        return any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in self.nodes)

    @property
    def is_portable(self) -> bool:
        return all(isinstance(node, (*_STATEMENTS, _TYPE_ALIAS)) or _chooses_import(node) for node in self.nodes)

    @property
    def is_for_type_checkers(self) -> bool:
        conditions = [node.test for node in self.nodes if isinstance(node, ast.If)]
        return any(ast.unparse(test).endswith("TYPE_CHECKING") for test in conditions)


class _Module:
    """A file's text, split into units, and the names that its top level binds."""

    def __init__(self, text: str, file: str, values: Mapping[str, Any]) -> None:
        self.lines = text.split("\n")
        self.tree = ast.parse(text)
        self.file = file
        self.values = values
        self.frameworks = _framework_names(self.tree)
        self.imported = {name for node in _imports(self.tree) for name in _imported(node)}
        self.units = [self.unit(group) for group in _sharing_lines(self.tree.body)]
        self._bindings: dict[str, list[_Unit]] = {}
        for unit in self.units:
            for name in unit.binds | (unit.registries - self.imported):
                self._bindings.setdefault(name, []).append(unit)

    def unit(self, nodes: Sequence[ast.stmt]) -> _Unit:
        first = min(_first_line(node) for node in nodes)
        lines = dict.fromkeys(range(first, max(node.end_lineno or 0 for node in nodes) + 1))
        kept = []
        for node in nodes:
            if isinstance(node, _DEFINITIONS) and (dropped := self._dropped(node)):
                for number in range(_first_line(node), (dropped[-1].end_lineno or 0) + 1):
                    del lines[number]
                node = copy.copy(node)  # noqa: PLW2901 - the tree stays as the file is
                node.decorator_list = node.decorator_list[len(dropped) :]
            kept.append(node)
        return _Unit(nodes=kept, lines=list(lines), imported=self.imported)

    def _dropped(self, node: _Function | ast.ClassDef) -> list[ast.expr]:
        """Return the decorators from the first to the last one of a framework."""
        numbers = [number for number, each in enumerate(node.decorator_list, 1) if _root(each) in self.frameworks]
        return node.decorator_list[: max(numbers, default=0)]

    def binding(self, name: str) -> list[_Unit]:
        """Return the units that bind the name at the top level, or change its value there."""
        return self._bindings.get(name, [])

    @cached_property
    def is_lazy(self) -> bool:
        """Return whether the file imports `annotations` from `__future__`, so that no annotation is evaluated."""
        futures = [unit.nodes[0] for unit in self.units if _is_future(unit)]
        return any(alias.name == "annotations" for node in futures for alias in getattr(node, "names", ()))


def _extracted(
    module: _Module, function: Callable[..., Any], line: int, *, modules: Sequence[str], has_folder: bool
) -> FunctionSource:
    name = function.__name__
    node, above = _find_function(module, name, line)
    _check_closure(module, node, above, function.__code__.co_freevars)
    entry = module.unit([node])
    kept = _Collector(module, name, entry).collect()
    lines = {number: module.lines[number - 1] for unit in kept for number in unit.lines}
    if module.lines[node.lineno - 1].lstrip("\f")[:1].isspace():
        lines[min(entry.lines) - 1] = "if True:"
    package = str(module.values.get("__package__") or "")
    text = "\n".join(lines.get(number, "") for number in range(1, max(lines) + 1)) + "\n"
    sources = module_sources(modules, name, file=module.file)
    for of, source in {module.file: text, **sources}.items():
        check_imports(source, name, of=of, package=package, sources=sources, has_folder=has_folder, file=module.file)
    return FunctionSource(name=name, file=module.file, text=text, package=package, modules=sources)


class _Collector:
    """Finds the units that a function needs."""

    def __init__(self, module: _Module, name: str, entry: _Unit) -> None:
        self._module = module
        self._name = name
        self._kept = [entry]
        self._visited = {name}

    def collect(self) -> list[_Unit]:
        """Return the units, including the function's own.

        Raises:
            InvalidSpec: the function uses a name that cannot travel.
        """
        for unit in self._kept:  # the loop appends to the list
            for name in sorted(unit.uses):
                self._need(name, unit)
            for names, is_evaluated in unit.annotations:
                for name in sorted(names):
                    self._need_mentioned(name, unit, is_evaluated=is_evaluated and not self._module.is_lazy)
        for name in sorted(self._visited):
            self._check_state(name)
        return [*self._kept, *filter(_is_future, self._module.units)]

    def _need_mentioned(self, name: str, user: _Unit, *, is_evaluated: bool) -> None:
        """Add the units of a name in an annotation; a name that is never evaluated is left out if it cannot travel."""
        units = self._module.binding(name)
        if is_evaluated or (units and not any(self._why_not(name, unit) for unit in units)):
            self._need(name, user)

    def _need(self, name: str, user: _Unit) -> None:
        if name in self._visited:
            return
        units = self._module.binding(name)
        if not units and name not in _KNOWN and not any(name in unit.changes for unit in self._module.units):
            units = [unit for unit in self._module.units if unit.is_star] or self._unknown(name, user)
        self._visited.add(name)
        for unit in units:
            if why := self._why_not(name, unit):
                self._refuse(name, why, "pass its value as an argument, or make it in the function", user)
            if unit not in self._kept:
                self._kept.append(unit)

    def _why_not(self, name: str, unit: _Unit) -> str:
        """Return why a binding of the name cannot travel; "" if it can."""
        at = f"(line {unit.lines[0]})"
        if unit.is_for_type_checkers:
            return f"is imported for type checkers only {at}"
        if not unit.is_portable:
            kind = next(type(node).__name__.lower() for node in unit.nodes if not isinstance(node, _STATEMENTS))
            return f"is module state: it is bound or changed in the body of a `{kind}` {at}"
        imports = [node for node in unit.nodes if isinstance(node, (ast.Import, ast.ImportFrom))]
        if imports and name in self._module.frameworks:
            return f"is imported from {_origin(imports[0])} {at}, which the training's image does not have"
        return ""

    def _unknown(self, name: str, user: _Unit) -> NoReturn:
        if name == "__file__":
            self._refuse(name, "is a path of this machine", "pass the path as an argument", user)
        if name in self._module.values:
            why = f"exists only in this process, {self._module.file} does not define it: a changed cell, or exec"
            self._refuse(name, why, "assign it at the top level, and run that again", user)
        self._refuse(name, f"is defined nowhere in {self._module.file}", "define or import it", user)

    def _check_state(self, name: str) -> None:
        """Refuse a name whose constant has another value by now, or that a function which does not travel changes."""
        units, own = self._module.binding(name), set(self._kept[0].lines)
        for unit in self._module.units:
            if name in unit.changes and unit not in self._kept and not own <= set(unit.lines):
                why = f"is module state: another function changes it by `global` (line {unit.lines[0]})"
                self._refuse(name, why, "pass its value as an argument", self._kept[0])
        if len(units) == 1 and name in self._module.values:
            constant = _constant(units[0], name)
            if constant and not _is_equal(constant[0], self._module.values[name]):
                why = f"has the value {self._module.values[name]!r:.80} by now, and {constant[0]!r:.80} in the file"
                self._refuse(name, f"{why} (line {units[0].lines[0]})", "pass its value as an argument", self._kept[0])

    def _refuse(self, name: str, why: str, advice: str, user: _Unit) -> NoReturn:
        number = user.lines[0]
        statement = self._module.lines[number - 1].strip()
        via = "" if user is self._kept[0] else f" (used in line {number}: {statement:.80})"
        _refuse(self._name, f"{name!r}{via}", why, advice)


# --- the syntax tree


def _without_annotations(node: ast.stmt) -> ast.stmt:
    """Return the statement without annotations, because their names are not needed to run."""
    bare = copy.deepcopy(node)
    for each in ast.walk(bare):
        if isinstance(each, ast.AnnAssign):
            each.annotation = ast.Constant(None)
        elif isinstance(each, ast.arg):
            each.annotation = None
        elif isinstance(each, _Function):
            each.returns = None
    return bare


def _inner(table: symtable.SymbolTable) -> Iterator[symtable.Symbol]:
    for child in table.get_children():
        yield from child.get_symbols()
        yield from _inner(child)


def _annotations(node: ast.AST, *, in_function: bool = False) -> Iterator[tuple[set[str], bool]]:
    """Yield the names in each annotation, with whether it is evaluated; those of local variables never are."""
    annotation = getattr(node, "annotation", None)
    if annotation is not None:
        yield from _named(annotation, is_evaluated=not (in_function and isinstance(node, ast.AnnAssign)))
    returns = getattr(node, "returns", None)
    if returns is not None:
        yield from _named(returns, is_evaluated=True)
    in_body = isinstance(node, _Function) or (in_function and not isinstance(node, ast.ClassDef))
    for child in ast.iter_child_nodes(node):
        yield from _annotations(child, in_function=in_body)


def _named(annotation: ast.expr, *, is_evaluated: bool) -> Iterator[tuple[set[str], bool]]:
    yield {each.id for each in ast.walk(annotation) if isinstance(each, ast.Name)}, is_evaluated
    for each in ast.walk(annotation):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            try:
                inner = ast.parse(each.value, mode="eval")
            except SyntaxError:
                continue
            yield {node.id for node in ast.walk(inner) if isinstance(node, ast.Name)}, False


def _find_function(module: _Module, name: str, line: int) -> tuple[_Function, tuple[ast.stmt, ...]]:
    """Return the function's definition, and those around it.

    The definition is the one at the line; for line 0 it is the last one at the top level, else the last one.
    """
    named = [each for each in _definitions(module.tree) if each[0].name == name]
    matching = [each for each in named if line in (0, _first_line(each[0]))]
    if not matching:
        _refuse(name, module.file, "has changed since it was loaded", "load it again")
    return max(matching, key=lambda each: (not each[0].col_offset, each[0].lineno))


def _definitions(node: ast.AST, above: tuple[ast.stmt, ...] = ()) -> Iterator[tuple[_Function, tuple[ast.stmt, ...]]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case)):
            if isinstance(child, _Function):
                yield child, above
            yield from _definitions(child, (*above, child) if isinstance(child, _DEFINITIONS) else above)


def _check_closure(module: _Module, node: _Function, above: Sequence[ast.stmt], variables: Sequence[str]) -> None:
    """Refuse a function inside another one if it uses that function's variables, or that function."""
    if not above:
        return
    outer = next(each for each in above if isinstance(each, _DEFINITIONS))
    for name in variables:
        why = f"is a local variable of {outer.name} (line {outer.lineno})"
        _refuse(node.name, repr(name), why, "pass it as an argument, or move it to the top level")
    if outer.name in module.unit([node]).uses:
        _refuse(node.name, repr(outer.name), "is the function around it", "move it to the top level")


def _sharing_lines(nodes: Sequence[ast.stmt]) -> Iterator[list[ast.stmt]]:
    """Yield the statements in groups: those that share a line are in one group."""
    group: list[ast.stmt] = []
    for node in nodes:
        if group and _first_line(node) > (group[-1].end_lineno or 0):
            yield group
            group = []
        group.append(node)
    if group:
        yield group


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])


def _height(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _root(node: ast.AST | None) -> str:
    """Return the name at the beginning of an expression such as `a.b[0].c()`; "" if there is none."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call, ast.Starred)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _changed(node: ast.stmt, imported: set[str]) -> set[str]:
    """Return the names whose values a statement changes in place; of imported modules, only by a setting."""
    targets: list[ast.expr] = list(getattr(node, "targets", ()))
    if isinstance(node, (ast.AugAssign, ast.AnnAssign)):
        targets = [node.target]
    match node:
        case ast.Expr(ast.Call(ast.Attribute(attr=attr) as called)):
            targets = [called] if _root(called) not in imported or _SETTING.fullmatch(attr) else []
    return {_root(each) for each in targets if isinstance(each, (ast.Attribute, ast.Subscript))} - {""}


def _chooses_import(node: ast.stmt) -> bool:
    """Return whether the statement is a `try` or `if` that only imports and assigns constants."""
    if not isinstance(node, (ast.Try, ast.If)):
        return False
    inner = [each for each in ast.walk(node) if isinstance(each, ast.stmt) and each is not node]
    simple = (ast.Import, ast.ImportFrom, ast.Pass, ast.Try, ast.If)
    is_simple = all(isinstance(each, simple) or _is_constant(each) for each in inner)
    return is_simple and any(isinstance(each, (ast.Import, ast.ImportFrom)) for each in inner)


def _is_constant(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)


def _is_future(unit: _Unit) -> bool:
    node = unit.nodes[0]
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _imports(tree: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    return (node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom)))


def _imported(node: ast.Import | ast.ImportFrom) -> set[str]:
    return {alias.asname or alias.name.partition(".")[0] for alias in node.names}


def _framework_names(tree: ast.Module) -> set[str]:
    """Return the names that the file imports from Airflow and this package, also inside functions."""
    names = {name for node in _imports(tree) if _origin(node) in _FRAMEWORKS for name in _imported(node)}
    for node in tree.body:
        if isinstance(node, ast.Assign) and _root(node.value) in names:
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def _origin(node: ast.Import | ast.ImportFrom) -> str:
    name = node.names[0].name if isinstance(node, ast.Import) else "." * node.level + (node.module or "")
    return name.partition(".")[0]


def _is_equal(literal: Any, value: Any) -> bool:
    try:
        return bool(literal == value)
    except ValueError:  # an array has no truth value
        return False


def _constant(unit: _Unit, name: str) -> list[Any]:
    """Return a list with the value that a literal assignment gives the name; empty for any other statement."""
    node = unit.nodes[0]
    if not isinstance(node, ast.Assign) or [_root(each) for each in node.targets] != [name]:
        return []
    try:
        return [ast.literal_eval(node.value)]
    except (ValueError, TypeError):
        return []
