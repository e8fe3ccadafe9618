"""Tests of taking a function out of its file: what is included and what is refused."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import re
import subprocess
import sys
import types
from dataclasses import dataclass
from textwrap import dedent, indent
from typing import TYPE_CHECKING, Any

import pytest

from cluster.fixtures import import_or_skip
from function_text import from_text
from ptjob_provider.core.code import modules as code_modules
from ptjob_provider.core.code.function import from_function
from ptjob_provider.core.code.program import script
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.in_pod.run_function import KEY, RETURN_VALUE, plain
from rows import each_row

if TYPE_CHECKING:
    from pathlib import Path

    from ptjob_provider.core.code.function import FunctionSource

TRAVEL: dict[str, str] = {
    "names of a module": "from math import sqrt, pi as circle\ndef train(): return [sqrt(9), circle]",
    "an import inside of it": "def train():\n    from fractions import Fraction\n    return str(Fraction(1, 3))",
    "an import that may fail": """
        try:
            import no_such_module as fast
            HAS_FAST = True
        except ImportError:
            fast = None
            HAS_FAST = False
        def train(): return [fast, HAS_FAST]
    """,
    "an import by version": """
        import sys
        if sys.version_info >= (3, 11):
            from enum import StrEnum as Words
        else:
            from enum import Enum as Words
        def train(): return Words.__name__
    """,
    "an annotated constant": "RATE: float = 0.5\ndef train(): return RATE",
    "constants that are unpacked": "a, (b, *c) = 1, (2, 3, 4)\ndef train(): return [a, b, c]",
    "a constant that is counted up": "N = 1\nN += 2\ndef train(): return N",
    "a constant by an expression": "import os\nHOME = os.sep.join(['a', 'b'])\ndef train(): return HOME",
    "statements that change a constant": """
        LAYERS = []
        LAYERS.append(3)
        OPTIONS = {"a": {}}
        OPTIONS["a"]["b"] = 1
        del OPTIONS["a"]["b"]
        def train(): return [LAYERS, OPTIONS]
    """,
    "a helper below": "def train(): return double(2)\ndef double(x): return 2 * x",
    "itself": "def train(n=5): return n * train(n - 1) if n else 1",
    "a helper that is a lambda": "double = lambda x: 2 * x\ndef train(): return double(2)",
    "a class and its base": """
        import abc
        class Base(abc.ABC):
            SIZE = 3
            @abc.abstractmethod
            def size(self): ...
        class Net(Base):
            def size(self): return self.SIZE + EXTRA
        EXTRA = 1
        def train(): return Net().size()
    """,
    "a decorator with arguments": """
        import functools
        TIMES = 3
        def times(n):
            def around(function):
                @functools.wraps(function)
                def all_of_them(): return [function() for _ in range(n)]
                return all_of_them
            return around
        @times(
            TIMES
        )
        def train(): return 1
    """,
    "type hints that are evaluated": """
        from typing import TypedDict
        class Options(TypedDict):
            rate: float
        def train(options: Options = {}, steps: "list[Later]" = ()) -> Options: return dict(options)
        class Later: pass
    """,
    "a variable's hint that nobody evaluates": "def train():\n    x: Nothing = 1\n    return x",
    "text of many lines": 'TEXT = """a\n  b\n"""\ndef train():\n    return TEXT + """\nc"""',
    "comprehensions and inner functions": """
        BIAS = 1
        def train():
            total = 0
            def add(n):
                nonlocal total
                total += n + BIAS
            [add(k) for k in range(3)]
            return [total, {BIAS: "x"}[1], [y := BIAS, y]]
    """,
    "a global of its own": """
        COUNT = 0
        def count():
            global COUNT, LAST
            COUNT += 1
            LAST = COUNT
            return LAST
        def train(): return [count(), count(), COUNT]
    """,
    "a global that a helper makes": """
        def begin():
            global DEVICE
            DEVICE = "cpu"
        def train():
            begin()
            return DEVICE
    """,
    "what a decorator enters into a registry": """
        import functools
        class Registry(dict):
            def register(self, name): return lambda function: self.setdefault(name, function)
        MODELS = Registry()
        @MODELS.register("small")
        def small(): return SIZE
        SIZE = 3
        @functools.singledispatch
        def size(value): return "something"
        @size.register
        def _(value: int): return "a number"
        @functools.cache
        def stays_behind(): return open(__file__)
        def train(): return [MODELS["small"](), size(1), functools.reduce(max, [1, 2])]
    """,
    "a form feed": "import math\n\f\nRATE = 1\n\fdef train(): return RATE",
    "names of the module": "def train(): return [__name__ != '', __doc__ is None]",
    "a coroutine that it runs": """
        import asyncio
        async def later(n: int) -> int: return n + 1
        def train(): return asyncio.run(later(1))
    """,
    "a hint that is no Python": "def train(n: 'a number, at least 1' = 1): return n",
    "a match and a walrus": """
        LIMIT = 3
        def train(value=4):
            match value:
                case int() if (over := value - LIMIT) > 0: return over
                case _: return 0
    """,
    "a parameter with a constant's name": "RATE = 1\ndef train(RATE=2): return RATE",
    "exec with names of its own": "def train():\n    names = {}\n    exec('x = 1', names)\n    return names['x']",
}


def loaded(folder: Path, text: str) -> types.ModuleType:
    """Write a file and import it without bytecode, which is compared only by second and size."""
    file = folder / "case.py"
    file.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("case", file)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    exec(compile(text, file, "exec", dont_inherit=True), vars(module))  # noqa: S102 - this test's own text
    return module


def run(source: FunctionSource, folder: Path, *args: Any) -> Any:
    """Run the script as a process in another folder and return its value."""
    program, told = folder / "script.py", folder / "returned"
    told.unlink(missing_ok=True)
    program.write_text(script(source, args), encoding="utf-8")
    environ = {"PATH": os.environ["PATH"], RETURN_VALUE: str(told)}
    done = subprocess.run([sys.executable, "-I", "-S", str(program)], env=environ, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-500:]
    return json.loads(told.read_text())[KEY] if told.exists() else None


@each_row(("what", "text"), list(TRAVEL.items()))
def test_a_function_returns_the_same_alone(tmp_path: Path, what: str, text: str) -> None:
    text = dedent(text)
    module = loaded(tmp_path, text)

    source = from_function(module.train)

    assert run(source, tmp_path) == plain(module.train())


def test_nothing_travels_that_is_not_used() -> None:
    """Lines keep their numbers; unused statements become empty lines."""
    text = "import os\nimport math\nA = os\nB = 2\n\ndef train():\n    return math.pi * B\n\nprint(A)\n"

    found = from_text(text, "train", file="case.py")

    assert found.text == "\nimport math\n\nB = 2\n\ndef train():\n    return math.pi * B\n"


def test_a_call_of_an_imported_module_travels_only_if_it_is_a_setting() -> None:
    """Calls that inspect a result, in a notebook cell or below `train`, are not needed by the function."""
    settings = "import os, torch\ntorch.manual_seed(1)\n"
    looks = (
        "from ptjob_provider import train as run\nresult = run(fit)\nos.makedirs(result['job'])\ntorch.load('fit.pt')\n"
    )
    function = "def fit():\n    return torch.rand(1), os.sep\n"

    found = from_text(settings + looks + function, "fit", file="case.py")

    assert found.text == f"{settings}\n\n\n\n{function}"


DECORATED = (
    """
    from airflow.sdk import task
    @task.pytorch_job(
        workers=2,
    )
    def train(): return helper()
    """,
    """
    from airflow.sdk import dag, task
    @dag
    def runs():
        @task.pytorch_job
        def train(): return helper()
        train()
    runs()
    """,
    """
    from airflow.sdk import DAG, task as t
    with DAG("d"):
        if True:
            @t.pytorch_job()
            def train():
                return helper()
        train()
    """,
    """
    import airflow.decorators as a
    on_gpus = a.task.pytorch_job(gpus=1)
    @on_gpus
    def train(): return helper()
    """,
    """
    from ptjob_provider import train as job
    @job
    def train(): return helper()
    train.expand(a=[1])
    """,
)


@each_row("text", DECORATED)
def test_decorators_of_the_frameworks_stay_behind(text: str) -> None:
    """This includes functions in a DAG function or in `with DAG()`; the pod does not need Airflow."""
    helpers = "from airflow.sdk import task as plain_task\n@plain_task\ndef helper(): return 7\n"

    found = from_text(helpers + dedent(text), "train", file="case.py")

    assert not re.search("airflow|ptjob", found.text)
    space: dict[str, Any] = {}
    exec(found.text, space)  # noqa: S102 - the text under test
    assert space["train"]() == 7


def test_a_global_of_a_decorated_function_is_its_own() -> None:
    """The function may be nested in a `with DAG()` statement."""
    function = "@task\ndef train():\n    global COUNT\n    COUNT += 1\n    return COUNT\n"
    within = f'with DAG("d"):\n{indent(function, "    ")}'

    for text in (function, within):
        found = from_text(f"from airflow.sdk import DAG, task\nCOUNT = 0\n{text}", "train", file="case.py")
        assert "COUNT = 0" in found.text


def test_a_decorator_of_ones_own_stays_below_the_tasks_and_goes_above_it() -> None:
    """A decorator above `@task` decorates the task."""
    above = "from airflow.sdk import task\ndef mine(f): return f\n"

    below = from_text(f"{above}@task\n@mine\ndef train(): pass", "train", file="case.py")
    gone = from_text(f"{above}@mine\n@task\ndef train(): pass", "train", file="case.py")

    assert ("@mine" in below.text, "mine" in gone.text) == (True, False)


REFUSED = {
    "a variable of the function around it": (
        "def outer():\n    rate = 1\n    def train(): return rate\n    return train",
        "train: 'rate' is a local variable of outer (line 1)",
        "pass it as an argument, or move it to the top level",
    ),
    "the function around it": (
        "def outer():\n    def train(): return outer\n    return train",
        "'outer' is the function around it",
        "move it to the top level",
    ),
    "bound in a loop": (
        "for n in range(3):\n    LAST = n\ndef train(): return LAST",
        "'LAST' is module state: it is bound or changed in the body of a `for` (line 1)",
        "pass its value as an argument",
    ),
    "bound in an if": (
        "import os\nif os.sep == '/':\n    N = os.sep\nelse:\n    N = 2\ndef train(): return N",
        "'N' is module state: it is bound or changed in the body of a `if` (line 2)",
        "pass its value",
    ),
    "bound once more in a while": (
        "N = 0\nwhile N < 3:\n    N += 1\ndef train(): return N",
        "'N' is module state: it is bound or changed in the body of a `while`",
        "pass its value",
    ),
    "changed by another function": (
        "N = 0\ndef reset():\n    global N\n    N = 0\ndef train(): return N",
        "'N' is module state: another function changes it by `global` (line 2)",
        "pass its value",
    ),
    "made by another function": (
        "def begin():\n    global N\n    N = 0\ndef train(): return N",
        "'N' is module state: another function changes it by `global` (line 1)",
        "pass its value",
    ),
    "used by a helper": (
        "for n in range(3):\n    LAST = n\ndef helper(): return LAST\ndef train(): return helper()",
        "'LAST' (used in line 3: def helper(): return LAST) is module state",
        "pass its value",
    ),
    "nowhere": ("def train(): return missing", "'missing' is defined nowhere", "define or import it"),
    "its own path": ("def train(): return __file__", "'__file__' is a path of this machine", "pass the path"),
    "for type checkers only": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from os import path\ndef train(): return path",
        "'path' is imported for type checkers only (line 2)",
        "pass its value",
    ),
    "of Airflow": (
        "from airflow.sdk import Variable\nTOKEN = Variable.get('t')\ndef train(): return TOKEN",
        "'Variable' (used in line 2: TOKEN = Variable.get('t')) is imported from airflow (line 1), which the",
        "pass its value",
    ),
    "a hint of Airflow": (
        "from airflow.sdk import Context\ndef train(c: Context = None): return 1",
        "'Context' is imported from airflow",
        "pass its value",
    ),
    "a coroutine": ("async def train(): return 1", "train is a coroutine", "call asyncio.run in it"),
}


@each_row(("what", "text", "why", "advice"), [(what, *row) for what, row in REFUSED.items()])
def test_what_cannot_travel_is_refused_by_its_name(what: str, text: str, why: str, advice: str) -> None:
    with pytest.raises(InvalidSpec) as error:
        from_text(text, "train", file="case.py")

    assert str(error.value).startswith("function train: ")
    assert why in str(error.value)
    assert "; allowed: " in str(error.value)
    assert advice in str(error.value)


class Trainer:
    def fit(self) -> int:
        return 1


def _wrapped() -> Any:
    def real() -> int:
        return 1

    def wrapper() -> int:
        return real()

    return wrapper


@each_row(
    ("thing", "why"),
    [
        (lambda: 1, r"is a lambda \(line \d+\)"),
        (Trainer().fit, "Trainer.fit is a method"),
        (Trainer.fit, "fit is a method"),
        (Trainer, "is a type"),
        (len, "is a builtin_function_or_method"),
        (functools.partial(run, 1), "is a partial"),
        (_wrapped(), "'real' is a local variable of _wrapped"),
    ],
)
def test_what_is_no_plain_function_is_refused(thing: Any, why: str) -> None:
    with pytest.raises(InvalidSpec, match=f"{why}.*; allowed: arguments, and imports"):
        from_function(thing)


def test_the_result_of_a_call_is_no_function() -> None:
    """`train(fit(0.5))` calls the function locally."""
    with pytest.raises(InvalidSpec, match=r"function 0\.5: 0\.5 is a float.*; pass the function itself"):
        from_function(0.5)  # type: ignore[arg-type]


def test_a_function_that_exec_made_is_refused() -> None:
    space: dict[str, Any] = {}
    exec("def train(): return 1\ndef steps(): yield 1", space)  # noqa: S102 - that is what is refused

    with pytest.raises(InvalidSpec, match=r"train: its source is not there: exec or a shell made it.*in a file"):
        from_function(space["train"])
    with pytest.raises(InvalidSpec, match="steps: steps is a generator"):
        from_function(space["steps"])


def test_a_file_that_was_changed_since_is_refused(tmp_path: Path) -> None:
    """The source would differ from the loaded function."""
    train = loaded(tmp_path, "def train(): return 1\n").train
    (tmp_path / "case.py").write_text("import os\n\ndef train(): return 2\n")

    with pytest.raises(InvalidSpec, match=r"case.py has changed since it was loaded.*load it again"):
        from_function(train)


def test_a_constant_with_another_value_by_now_is_refused(tmp_path: Path) -> None:
    """Another module may have set it, also to an array, or a function may have changed it in place."""
    module = loaded(tmp_path, "RATE = [0.1]\nCACHE = {}\ndef train(): return [RATE, CACHE]\n")
    assert from_function(module.train).name == "train"

    module.CACHE["a"] = 1

    with pytest.raises(InvalidSpec, match=r"'CACHE' has the value {'a': 1} by now, and {} in the file \(line 2\)"):
        from_function(module.train)

    module.CACHE = {}  # type: ignore[attr-defined]
    np = import_or_skip("numpy")
    for value in (np.array([1, 2]), [np.array([1, 2])]):
        module.RATE = value  # type: ignore[attr-defined]
        with pytest.raises(InvalidSpec, match=r"'RATE' has the value .*array\(\[1, 2\]\)\]? by now, and \[0.1\] in"):
            from_function(module.train)


def test_a_name_that_is_in_this_process_only_is_refused(tmp_path: Path) -> None:
    """A notebook cell that was edited after it ran leaves such a name."""
    module = loaded(tmp_path, "def train(): return hidden\n")
    module.hidden = 3  # type: ignore[attr-defined]

    with pytest.raises(InvalidSpec, match=r"'hidden' exists only in this process, .*case.py does not define it"):
        from_function(module.train)


# --- notebooks


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


def test_a_function_of_a_notebook_travels_with_what_other_cells_have(tmp_path: Path) -> None:
    """Cells count in the order they ran, also below `%%time`; the last definition wins; other magics are skipped."""
    train = notebook(
        "import math\nRATE = 1",
        "from __future__ import annotations\nRATE = 0.5\n1 / 0",
        "%matplotlib inline",
        "get_ipython().run_cell_magic('time', '', 'def helper(): return 2\\nSTEPS = 3\\n')",
        "get_ipython().run_cell_magic('bash', '', 'def helper')",
        "get_ipython().run_line_magic('time', 'helper()')",
        "def helper(): return 0",
        "def train() -> Nowhere: return 0",
        "def helper(): return math.floor(RATE)",
        "def train() -> Nowhere: return [helper(), RATE, STEPS]",
    )

    assert run(from_function(train), tmp_path) == [0, 0.5, 3]


def test_hidden_state_of_a_notebook_is_refused() -> None:
    train = notebook("def train(): return [rate]", "rate = 1")
    train.__globals__["In"][2] = "rate = 2"

    with pytest.raises(InvalidSpec, match="'rate' has the value 1 by now, and 2 in the file"):
        from_function(train)

    train.__globals__["In"][2] = ""

    with pytest.raises(
        InvalidSpec, match="'rate' exists only in this process, <notebook> does not define it: a changed cell"
    ):
        from_function(train)


# --- siblings


@dataclass
class Siblings:
    """A folder with a package, a module, and a file that uses them."""

    folder: Path
    file: Path

    def source(self, text: str, **options: Any) -> FunctionSource:
        return from_text(text, "train", file=str(self.file), **options)


@pytest.fixture
def siblings(tmp_path: Path) -> Siblings:
    package = tmp_path / "digits_net"
    (package / "layers").mkdir(parents=True)
    (package / "__init__.py").write_text("from .layers.dense import SIZE\n")
    (package / "layers" / "__init__.py").write_text("")
    (package / "layers" / "dense.py").write_text("import math\nSIZE = math.floor(3.5)\ndef fail(): return 1 / 0\n")
    (package / "weights.bin").write_bytes(b"\0")
    (tmp_path / "digits_tools.py").write_text("from digits_net import SIZE\ndef twice(): return 2 * SIZE\n")
    return Siblings(folder=tmp_path, file=tmp_path / "train.py")


USES = (
    "from digits_tools import twice\ndef train():\n    import digits_net.layers\n    return [twice(), digits_net.SIZE]"
)


def test_siblings_that_are_declared_travel(siblings: Siblings) -> None:
    """The source of modules, packages and sub-packages is included without importing them."""
    found = siblings.source(USES, modules=["digits_net", "digits_tools"])

    assert sorted(found.modules) == [
        "digits_net/__init__.py",
        "digits_net/layers/__init__.py",
        "digits_net/layers/dense.py",
        "digits_tools.py",
    ]
    assert "digits_net" not in sys.modules
    assert run(found, siblings.folder) == [6, 3]


@each_row(
    ("modules", "missing"),
    [([], "digits_tools"), (["digits_tools"], "digits_net"), (["digits_net"], "digits_tools")],
)
def test_a_sibling_that_is_not_declared_is_refused(siblings: Siblings, modules: list[str], missing: str) -> None:
    """The error shows both ways to include it, wherever the import is."""
    words = rf"{missing}', imported in .*line 1.*or 2?, is a file of this machine|{missing}', imported in"
    with pytest.raises(InvalidSpec, match=words) as error:
        siblings.source(USES, modules=modules)

    assert f'write modules=["{missing}"], or code="." for the whole folder' in str(error.value)


def test_siblings_are_not_looked_for_where_the_folder_travels(siblings: Siblings) -> None:
    assert siblings.source(USES, has_folder=True).modules == {}


def test_relative_imports_are_of_the_package_that_travels(
    siblings: Siblings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (siblings.folder / "digits_net" / "job.py").write_text(
        "from . import SIZE\nfrom .layers.dense import fail\ndef train(): return [SIZE, __package__]\n"
    )
    monkeypatch.syspath_prepend(str(siblings.folder))
    train = importlib.import_module("digits_net.job").train

    try:
        with pytest.raises(InvalidSpec, match=r'write modules=\["digits_net"\]'):
            from_function(train)
        assert run(from_function(train, modules=["digits_net"]), tmp_path) == [3, "digits_net"]
    finally:
        for name in [name for name in sys.modules if name.startswith("digits_net")]:
            del sys.modules[name]


@each_row(
    ("name", "why"),
    [("digits_none", "allowed: names of packages"), ("digits_net.layers", "of the top level"), ("sys", "names of")],
)
def test_modules_are_packages_of_the_top_level(siblings: Siblings, name: str, why: str) -> None:
    with pytest.raises(InvalidSpec, match=f"function train: modules: '{name}' is not allowed.*{why}"):
        siblings.source("def train(): pass", modules=[name])


def test_a_package_that_is_not_pure_python_is_refused(siblings: Siblings) -> None:
    """Its binary may not fit the image."""
    (siblings.folder / "digits_net" / "_fast.so").write_bytes(b"")

    with pytest.raises(InvalidSpec, match=r"digits_net \(_fast.so\)' is not allowed; allowed: pure Python; install"):
        siblings.source("def train(): pass", modules=["digits_net"])


def test_what_is_installed_is_no_sibling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same holds for modules that only the image has, the standard library and editable installs."""
    monkeypatch.setitem(sys.modules, "made_here", types.ModuleType("made_here"))
    used = "yaml, torch, json, no_such_package, importlinter, made_here"
    text = f"import {used}\ndef train(): return {used}"

    assert from_text(text, "train", file=str(tmp_path / "train.py")).modules == {}
    editable = code_modules._is_local(importlib.util.find_spec("ptjob_provider"), "ptjob_provider")
    assert not editable
