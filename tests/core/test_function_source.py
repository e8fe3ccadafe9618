"""Tests of taking a function out of its file: what is included and what is refused."""

from __future__ import annotations

import base64
import functools
import importlib.util
import pickle
import re
import sys
import types
from textwrap import dedent, indent
from typing import TYPE_CHECKING, Any

import pytest

from cluster.fixtures import import_or_skip
from function_modules import loaded, notebook, run
from function_text import from_text
from ptjob_provider.core.code import modules as code_modules
from ptjob_provider.core.code.function import from_function
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.in_pod.run_function import plain
from rows import each_row

if TYPE_CHECKING:
    from pathlib import Path

    from ptjob_provider.core.code.function import FunctionSource

TRAVEL: dict[str, str] = {
    "an annotated constant": "RATE: float = 0.5\ndef train(): return RATE",
    "a helper that is a lambda": "double = lambda x: 2 * x\ndef train(): return double(2)",
    "type hints that are evaluated": """
        from typing import TypedDict
        class Options(TypedDict):
            rate: float
        def train(options: Options = {}, steps: "list[Later]" = ()) -> Options: return dict(options)
        class Later: pass
    """,
    "an attribute in a hint with the name of a global": """
        import os
        path = object()
        def train(place: os.path = None, other: "os.path" = None): return 1
    """,
    "a variable's hint that nobody evaluates": "def train():\n    x: Nothing = 1\n    return x",
    "what a decorator adds to a function": """
        import functools
        @functools.singledispatch
        def size(value): return "something"
        @size.register
        def _(value: int): return "a number"
        @functools.cache
        def stays_behind(): return open(__file__)
        def train(): return [size(1), functools.reduce(max, [1, 2])]
    """,
    "an attribute of a class and of a function": """
        class Net: SIZE = 1
        Net.SIZE = 3
        def helper(): return helper.times
        helper.times = 2
        def train(): return [Net.SIZE, helper()]
    """,
    "a function and a class that are defined again": """
        def helper(): return open(__file__)
        class Net: size = helper
        def helper(): return 2
        class Net: size = 3
        def train(): return [helper(), Net.size]
    """,
    "types": """
        from collections import namedtuple
        from typing import NewType, TypeVar
        Label, Size, T = NewType("Label", str), list[int], TypeVar("T")
        Point = namedtuple("Point", "x y")
        def train(sizes: Size = (), label: Label = Label("a"), point: Point = Point(1, 2)) -> T:
            return [*sizes, label, point]
    """,
    "another name of what a module has": """
        import math, os.path
        root, place = math.sqrt, os.path
        def train(): return [root(4), place.basename("a/b")]
    """,
    "variables of the function around it": """
        import functools
        def made(rate, sizes):
            steps = [1]
            steps.append(2)
            def train(): return [rate, sizes, steps]
            return train
        train = made(0.5, (1, 2))
    """,
    "a form feed": "import math\n\f\nRATE = 1\n\fdef train(): return RATE",
    "names of the module": "def train(): return [__name__ != '', __doc__ is None]",
    "a coroutine that it runs": """
        import asyncio
        async def later(n: int) -> int: return n + 1
        def train(): return asyncio.run(later(1))
    """,
    "a hint that is no Python": "def train(n: 'a number, at least 1' = 1): return n",
    "a parameter with a constant's name": "RATE = 1\ndef train(RATE=2): return RATE",
}


@each_row(("what", "text"), list(TRAVEL.items()))
def test_a_function_returns_the_same_alone(tmp_path: Path, what: str, text: str) -> None:
    text = dedent(text)
    module = loaded(tmp_path, text)

    source = from_function(module.train)

    assert run(source, tmp_path) == plain(module.train())


def test_unused_statements_are_not_sent() -> None:
    """Lines keep their numbers; unused statements become empty lines."""
    text = "import os\nimport math\nA = os\nB = 2\n\ndef train():\n    return math.pi * B\n\nprint(A)\n"

    found = from_text(text, "train", file="case.py")

    assert found.text == "\nimport math\n\n\n\ndef train():\n    return math.pi * B\n"


NOT_RUN = {
    "lib.manual_seed(7)": "import lib",
    "seed_everything(42)": "def seed_everything(seed): pass",
    "use_deterministic_algorithms(True)": "from lib import *",
    "lib.backends.benchmark = True": "import lib",
    "lib.variables[…] = …": "import lib",
    "lib.login(key=…, token=…)": "import lib",
    "LOG.setLevel(10)": "import logging\nLOG = logging.getLogger('a')",
    "Net.SIZE = 3": "class Net: pass",
}
LIB = """
from types import SimpleNamespace
variables, backends = {}, SimpleNamespace(benchmark=False)
def manual_seed(seed): pass
def use_deterministic_algorithms(on): pass
def login(**names): pass
"""


@each_row(("call", "above"), list(NOT_RUN.items()))
def test_a_notice_names_what_the_top_level_does_and_the_job_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, above: str
) -> None:
    """Also in an `if`. Texts are left out, because they may be secrets."""
    (tmp_path / "lib.py").write_text(LIB)
    monkeypatch.syspath_prepend(tmp_path)
    real = {
        "lib.login(key=…, token=…)": "lib.login(key=\"it's\", token='hf_abc')",
        "lib.variables[…] = …": "lib.variables['A'] = 'hf_abc'",
    }
    for text in (real.get(call, call), f"if True:\n    {real.get(call, call)}"):
        source = from_function(loaded(tmp_path, f"{above}\n{text}\ndef train(): pass\n").train)

        line = 1 + above.count("\n") + text.count("\n") + 1
        assert source.notice == f"function train: {call} (line {line}) is not run in the job; call it in the function"


def test_no_notice_is_about_data_the_frameworks_and_the_start_of_the_job(tmp_path: Path) -> None:
    text = """
import json, sys
from ptjob_provider import train as run
CFG = {}
CFG.update(lr=1)
print(CFG)
def change(config): pass
change(CFG)
def unused(): pass
def main(): run(train)
def train(): return CFG
def pipeline():
    @run
    def step(): pass
if __name__ == "__main__":
    main()
    json.loads("1")
if not CFG:
    pipeline()
    sys.exit(main())
    train()
run.attribute = 1
"""
    assert from_function(loaded(tmp_path, text).train).notice == ""


def test_a_notice_has_at_most_ten_calls(tmp_path: Path) -> None:
    """A cell that ran twice counts once."""
    calls = "".join(f"isfinite({n % 12})\n" for n in range(24))

    notice = from_function(loaded(tmp_path, f"from math import isfinite\n{calls}def train(): pass\n").train).notice

    assert (notice.count("isfinite"), "isfinite(9) (line 23), … is not run" in notice) == (10, True)


DECORATED = (
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
        assert pickle.loads(base64.b64decode(found.values)) == {"COUNT": 0}  # noqa: S301 - made here


def test_a_decorator_of_ones_own_stays_below_the_tasks_and_goes_above_it() -> None:
    """A decorator above `@task` decorates the task."""
    above = "from airflow.sdk import task\ndef mine(f): return f\n"

    below = from_text(f"{above}@task\n@mine\ndef train(): pass", "train", file="case.py")
    gone = from_text(f"{above}@mine\n@task\ndef train(): pass", "train", file="case.py")

    assert ("@mine" in below.text, "mine" in gone.text) == (True, False)


REFUSED = {
    "the function around it": (
        "def outer():\n    def train(): return outer\n    return train\ntrain = outer()",
        "train: 'outer' is bound by a statement that does not travel (line 1)",
    ),
    "a function with variables of another one": (
        "def make(n): return lambda: n\nhelper = make(1)\ndef train(): return helper()",
        "'helper' is not plain data: function (line 2)",
    ),
    "a function in an if": (
        "if True:\n    def helper(): pass\ndef train(): return helper()",
        "'helper' is bound by a statement that does not travel (line 1)",
    ),
    "used by a helper": (
        "import threading\nLOCK = threading.Lock()\ndef helper(): return LOCK\ndef train(): return helper()",
        "'LOCK' (used in line 3: def helper(): return LOCK) is not plain data",
    ),
    "not yet bound": ("def train(): return LATER\nLATER = 1\ndel LATER", "'LATER' has no value (line 3)"),
    "its own path": (
        "def train(): return __file__",
        "'__file__' comes from this machine's '__file__' (not defined in ",
    ),
    "for type checkers only": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from os import path\ndef train(): return path",
        "'path' has no value (line 2)",
    ),
    "Airflow": (
        "import airflow\ndef train(): return airflow",
        "'airflow' is imported from airflow, which the training's image does not have (line 1)",
    ),
    "a hint that is a text": (
        "from airflow.sdk import Context\ndef train(c: 'list[Context]' = ()): return 1",
        "'Context' is imported from airflow",
    ),
    "the rank of this process": (
        "import os\nRANK = int(os.environ.get('RANK', 0))\ndef train(): return RANK",
        "'RANK' comes from this machine's 'environ' (line 2)",
    ),
    "a device's name that is changed": (
        "import torch\nD = 'cpu'\nD = 'cuda' if torch.cuda.is_available() else D\ndef train(): return D",
        "'D' comes from this machine's 'is_available' (line 3)",
    ),
    "a secret": (
        "TOKEN = ''.join(['hf_', 'abc'])\ndef train(): return TOKEN",
        "'TOKEN' has the secret 'TOKEN', which the job's manifest would show",
    ),
    "a secret in a map": (
        "CFG = {'a': [{'api_key': b'a' + bytes([1])}]}\ndef train(): return CFG",
        "'CFG' has the secret 'api_key', which the job's manifest would show",
    ),
    "a key and its passphrase in a map": (
        "CFG = {'private_key': '', 'passphrase': ''.join(['ab', 'cd'])}\ndef train(): return CFG",
        "'CFG' has the secret 'passphrase', which the job's manifest would show",
    ),
    "large data": (
        "DATA = list(range(100000))\ndef train(): return DATA",
        "'DATA' is not plain data: more than 262,144 bytes as a pickle (line 1)",
    ),
    "deep data": (
        "DATA = []\nfor _ in range(9000): DATA = [DATA]\ndef train(): return DATA",
        "'DATA' is not plain data: maximum recursion depth exceeded",
    ),
    "a default that is changed later": (
        "RATE = 1\ndef train(rate=RATE): return rate\nRATE = 2",
        "'RATE' is read when line 2 runs, and changed in line 3",
    ),
    "a class's value that is changed later": (
        (
            "CFG = {'a': 1}\ndef first(): return CFG['a']\nclass Net: SIZE = first()\ndef change(cfg): cfg['a'] = 2\n"
            "change(CFG)\ndef train(): return Net.SIZE"
        ),
        "'CFG' is read when line 3 runs, and changed in line 5",
    ),
}


@each_row(("text", "why"), list(REFUSED.values()))
def test_a_function_that_cannot_be_sent_is_refused_by_the_name_of_the_obstacle(
    tmp_path: Path, text: str, why: str
) -> None:
    with pytest.raises(InvalidSpec) as error:
        from_function(loaded(tmp_path, text).train)

    assert why in str(error.value)
    assert "; allowed: arguments, and imports, functions, classes and plain data" in str(error.value)
    assert "pass it as an argument" in str(error.value)


def test_a_coroutine_is_refused() -> None:
    with pytest.raises(InvalidSpec, match=r"train is a coroutine.*call asyncio.run in it"):
        from_text("async def train(): return 1", "train", file="case.py")


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
        (_wrapped(), r"'real' is not plain data: function \(not defined in"),
    ],
)
def test_a_callable_that_is_no_plain_function_is_refused(thing: Any, why: str) -> None:
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


def test_an_array_is_refused(tmp_path: Path) -> None:
    """A notebook's `data = randn(10)` is not evaluated anew."""
    numpy = import_or_skip("numpy")
    module = loaded(tmp_path, "DATA = [0.1]\ndef train(): return DATA\n")
    for value, name in ((numpy.ones(2), "ndarray"), ([numpy.ones(2)], "ndarray"), (numpy.float64(1), "float64")):
        module.DATA = value  # type: ignore[attr-defined]
        with pytest.raises(InvalidSpec, match=rf"'DATA' is not plain data: numpy.{name} \(line 1\).*pass it as an arg"):
            from_function(module.train)


def test_devices_and_dtypes_are_made_in_the_job(tmp_path: Path) -> None:
    """A device, or its name, that one statement makes is asked for in the job, also if its cell ran again."""
    torch = import_or_skip("torch")
    text = (
        "import torch\nDEVICE = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n"
        "NAME = 'cuda' if torch.cuda.is_available() else 'cpu'\nTYPES = [torch.bfloat16]\n"
        "def train(): return DEVICE, NAME, TYPES\n"
    )
    again = "".join(line for line in text.splitlines(keepends=True) if "cuda" in line)

    source = from_function(loaded(tmp_path, f"{again}{text}".replace("DEVICE", "import torch; DEVICE", 1)).train)

    assert pickle.loads(base64.b64decode(source.values)) == {"TYPES": [torch.bfloat16]}  # noqa: S301 - made here
    assert source.text == "\n\n" + text.replace("TYPES = [torch.bfloat16]\n", "\n")


def test_a_secret_that_the_file_shows_travels(tmp_path: Path) -> None:
    """As source did; an empty one and the name of a special token are none."""
    text = "PAD_TOKEN, PASSWORD, TOKENS = '<pad>', '', ['a']\ndef train(): return [PAD_TOKEN, PASSWORD, TOKENS]"
    module = loaded(tmp_path, text)

    assert run(from_function(module.train), tmp_path) == module.train()


def test_a_cell_of_constants_may_run_again_with_the_same_values(tmp_path: Path) -> None:
    """With the same value, though a class has read it; with another value, the class has the older one."""
    cells = ["LR = 0.1", "class Config: lr = LR", "def train(): return Config.lr"]

    assert run(from_function(notebook(*cells, cells[0])), tmp_path) == 0.1
    with pytest.raises(InvalidSpec, match=r"'LR' is read when line 4 runs, and changed in line 6.*change it before"):
        from_function(notebook(*cells, "LR = 0.2"))


def test_an_imported_map_travels_with_its_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file may have changed it; a number stays the module's, and a secret stays in the module that has it."""
    (tmp_path / "conf.py").write_text("CFG, SIZE, KEYS = {'lr': 1}, 2, {'api_key': 'abc'}\n")
    monkeypatch.syspath_prepend(tmp_path)
    text = "from conf import CFG, SIZE, KEYS\nCFG['lr'] = 3\ndef train(): return [CFG, SIZE, KEYS]\n"

    source = from_function(loaded(tmp_path, text).train, modules=["conf"])

    assert b"abc" not in base64.b64decode(source.values)
    (tmp_path / "pod").mkdir()
    assert run(source, tmp_path / "pod") == [{"lr": 3}, 2, {"api_key": "abc"}]


# --- notebooks


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


def test_hidden_state_of_a_notebook_travels(tmp_path: Path) -> None:
    """The value at the call counts, whatever the cells say by now."""
    train = notebook("def train(): return [rate]", "rate = 1")
    for cell in ("rate = 2", ""):
        train.__globals__["In"][2] = cell

        assert run(from_function(train), tmp_path) == [1]


# --- siblings


@pytest.fixture
def siblings(tmp_path: Path) -> Path:
    """Return a folder with a package and a module."""
    package = tmp_path / "digits_net"
    (package / "layers").mkdir(parents=True)
    (package / "__init__.py").write_text("from .layers.dense import SIZE\n")
    (package / "layers" / "__init__.py").write_text("")
    (package / "layers" / "dense.py").write_text("import math\nSIZE = math.floor(3.5)\ndef fail(): return 1 / 0\n")
    (package / "weights.bin").write_bytes(b"\0")
    (tmp_path / "digits_tools.py").write_text("from digits_net import SIZE\ndef twice(): return 2 * SIZE\n")
    return tmp_path


def beside(siblings: Path, text: str, **options: Any) -> FunctionSource:
    """Return the source of a function whose file is beside them."""
    return from_text(text, "train", file=str(siblings / "train.py"), **options)


USES = (
    "from digits_tools import twice\ndef train():\n    import digits_net.layers\n    return [twice(), digits_net.SIZE]"
)


def test_siblings_that_are_declared_travel(siblings: Path) -> None:
    """The source of modules, packages and sub-packages is included without importing them."""
    found = beside(siblings, USES, modules=["digits_net", "digits_tools"])

    assert sorted(found.modules) == [
        "digits_net/__init__.py",
        "digits_net/layers/__init__.py",
        "digits_net/layers/dense.py",
        "digits_tools.py",
    ]
    assert "digits_net" not in sys.modules
    assert run(found, siblings) == [6, 3]


@each_row(
    ("modules", "missing"),
    [([], "digits_tools"), (["digits_tools"], "digits_net"), (["digits_net"], "digits_tools")],
)
def test_a_sibling_that_is_not_declared_is_refused(siblings: Path, modules: list[str], missing: str) -> None:
    """The error shows both ways to include it, wherever the import is."""
    words = rf"{missing}', imported in .*line 1.*or 2?, is a file of this machine|{missing}', imported in"
    with pytest.raises(InvalidSpec, match=words) as error:
        beside(siblings, USES, modules=modules)

    assert f'write modules=["{missing}"], or code="." for the whole folder' in str(error.value)


def test_siblings_are_not_looked_for_where_the_folder_travels(siblings: Path) -> None:
    assert beside(siblings, USES, has_folder=True).modules == {}


def test_relative_imports_are_of_the_package_that_travels(
    siblings: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (siblings / "digits_net" / "job.py").write_text(
        "from . import SIZE\nfrom .layers.dense import fail\ndef train(): return [SIZE, __package__]\n"
    )
    monkeypatch.syspath_prepend(str(siblings))
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
def test_modules_are_packages_of_the_top_level(siblings: Path, name: str, why: str) -> None:
    with pytest.raises(InvalidSpec, match=f"function train: modules: '{name}' is not allowed.*{why}"):
        beside(siblings, "def train(): pass", modules=[name])


def test_a_package_that_is_not_pure_python_is_refused(siblings: Path) -> None:
    """Its binary may not fit the image."""
    (siblings / "digits_net" / "_fast.so").write_bytes(b"")

    with pytest.raises(InvalidSpec, match=r"digits_net \(_fast.so\)' is not allowed; allowed: pure Python; install"):
        beside(siblings, "def train(): pass", modules=["digits_net"])


def test_installed_modules_are_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same holds for modules that only the image has, the standard library and editable installs."""
    monkeypatch.setitem(sys.modules, "made_here", types.ModuleType("made_here"))
    used = "yaml, torch, json, no_such_package, importlinter, made_here"
    text = f"import {used}\ndef train(): return {used}"

    assert from_text(text, "train", file=str(tmp_path / "train.py")).modules == {}
    editable = code_modules._is_local("ptjob_provider", "train.py")
    assert not editable
