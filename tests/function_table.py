"""Functions that every way to run a training has to run: each has to return the same value as a direct call."""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from textwrap import dedent
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.code.program import return_value_in
from ptjob_provider.core.in_pod.run_function import RETURN_VALUE, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    import pytest

_LONG = "\n".join(f"def step_{n}(x):\n    return x + {n}\n" for n in range(650))

FUNCTIONS = {
    "no argument": "def train(): return 1",
    "nothing returned": "def train(): pass",
    "a text": "def train(a): return a\nARGS = ['$(HOME) {{ ds }} %s \\\\ \\'\"\\n']",
    "a text in unicode": "def train(größe): return größe + 'ß€🙂'\nKWARGS = {'größe': '模型'}",
    "names in unicode": "MAß = 2\ndef maß(x): return x * MAß\ndef train(é): return maß(é)\nARGS = [3]",
    "numbers": "def train(a, b, c): return [a + 1, b / 2, c]\nARGS = [2**60, 0.1, True]",
    "a number that is not one": "def train(a: float): return [str(a), a]\nARGS = [float('inf')]",
    "lists and maps": "def train(a, b): return {'a': a[1:], **b}\nARGS = [[1, [2, None]], {'x': {'y': []}}]",
    "a tuple": "def train(a: tuple[int, ...]): return a + (1,)\nARGS = [(1, 2)]",
    "positional arguments": "def train(a, /, b=2, *rest, c=3): return [a, b, rest, c]\nARGS = [1, 2, 3, 4]",
    "named arguments": "def train(*, a, **rest): return [a, rest]\nKWARGS = {'a': 1, 'b': 2}",
    "a path": "from pathlib import Path\ndef train(a: Path): return str(a / 'b')\nARGS = [Path('/a')]",
    "an enumeration": """
        from enum import Enum
        class Mode(Enum):
            FAST = "fast"
            SLOW = 2
        def train(mode: Mode, modes: list[Mode]): return [mode.name, [each.name for each in modes], mode]
        ARGS = [Mode.SLOW, [Mode.FAST]]
    """,
    "a date": """
        from datetime import UTC, date, datetime, timedelta
        def train(day: date, at: datetime): return [day + timedelta(days=1), at.isoformat()]
        ARGS = [date(2026, 2, 28), datetime(2026, 1, 2, 3, tzinfo=UTC)]
    """,
    "a dataclass": """
        from dataclasses import dataclass
        @dataclass(frozen=True)
        class Config:
            rate: float
            sizes: tuple[int, ...] = ()
        def train(config: Config): return [config.rate * 2, config.sizes, config]
        ARGS = [Config(0.5, (1, 2))]
    """,
    "hints as texts": "def train(a: 'tuple[int, int]') -> 'list[int]': return a + (3,)\nARGS = [(1, 2)]",
    "a decorator of its own": """
        import functools
        def twice(function):
            @functools.wraps(function)
            def wrapped(*args, **kwargs): return [function(*args, **kwargs) for _ in range(2)]
            return wrapped
        @twice
        def train(a): return a + 1
        ARGS = [1]
    """,
    "a decorator of the library": "import functools\n@functools.lru_cache\ndef train(a): return a * 2\nARGS = [4]",
    "a sibling": "from siblings.layers import width\ndef train(a): return width(a)\nARGS = [2]\nMODULES = ['siblings']",
    "a sibling, imported inside": """
        def train():
            import siblings.layers as layers
            return [layers.width(1), layers.__name__]
        MODULES = ["siblings"]
    """,
    "a default that is changed": "def train(a, seen=[]):\n    seen.append(a)\n    return seen\nARGS = [1]",
    "classes": """
        class Base:
            SIZE = 2
            def size(self): return self.SIZE
        class Net(Base):
            def size(self): return super().size() + 1
        def train(): return Net().size()
    """,
    "constants of constants": "A = 1\nB = [A, 2]\nB.append(3)\nC = {'b': B}\ndef train(): return C",
    "a constant in three quotes": 'TEXT = """one\n  two \\n\n"""\ndef train(): return TEXT',
    "an import that may fail": """
        try:
            import no_such_module as fast
        except ImportError:
            fast = None
        def train(): return fast is None
    """,
    "an import by another name": "import json as j, os.path\ndef train(): return j.dumps([os.path.basename('a/b')])",
    "all names of a module": "from math import *\ndef train(): return [sqrt(9), floor(pi)]",
    "a global of its own": "SEEN = 0\ndef train():\n    global SEEN\n    SEEN += 1\n    return SEEN",
    "a closure inside": """
        def train(a):
            total = a
            def add(n):
                nonlocal total
                total += n
                return total
            return [add(1), (lambda x: x + total)(1), [n for n in range(total)]]
        ARGS = [1]
    """,
    "a generator that helps": "def numbers(n):\n    yield from range(n)\ndef train(): return sum(numbers(4))",
    "a process of its own": """
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context
        def square(n): return n * n
        def train(a):
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                return list(pool.map(square, [a, 3]))
        ARGS = [2]
    """,
    "several on a line": "import math; RATE = 0.5\ndef train(a): x = RATE; return math.floor(a + x)\nARGS = [1.5]",
    "2,000 lines": f"{_LONG}\ndef train(a): return step_649(step_1(a))\nARGS = [1]",
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A function with its arguments and its return value as JSON.

    Attributes:
        text: the file, also for a notebook's cells; the arguments are `ARGS` and `KWARGS`, the siblings `MODULES`.
        function: the function of the file that was loaded.
    """

    what: str
    text: str
    function: Callable[..., Any]
    expected: Any

    def given(self, function: Callable[..., Any]) -> tuple[list[Any], dict[str, Any], Sequence[str]]:
        """Return the arguments and the siblings of the file or notebook that this function is of."""
        module = inspect.unwrap(function).__globals__
        return module.get("ARGS", []), module.get("KWARGS", {}), module.get("MODULES", ())


def cases(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Case]:
    """Save each function in a file and load it; the modules are removed at the end of the test."""
    monkeypatch.syspath_prepend(folder)
    (folder / "siblings").mkdir()
    (folder / "siblings" / "__init__.py").write_text("FACTOR = 3\n")
    (folder / "siblings" / "layers.py").write_text("from . import FACTOR\ndef width(n): return n * FACTOR\n")
    for name in ("siblings", "siblings.layers"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return [_case(folder, number, what, monkeypatch) for number, what in enumerate(FUNCTIONS)]


def _case(folder: Path, number: int, what: str, monkeypatch: pytest.MonkeyPatch) -> Case:
    name = f"case_{number}"
    (folder / f"{name}.py").write_text(dedent(FUNCTIONS[what]), encoding="utf-8")
    called = _loaded(folder, name, monkeypatch)
    returned = called.train(*getattr(called, "ARGS", []), **getattr(called, "KWARGS", {}))
    module = _loaded(folder, name, monkeypatch)  # the call may have changed values of the module
    return Case(
        what=what,
        text=dedent(FUNCTIONS[what]),
        function=module.train,
        expected=json.loads(json.dumps(plain(returned))),
    )


def _loaded(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


def returned_by(container: dict[str, Any], folder: Path) -> Any:
    """Run a container's program as a process, without torchrun, and return the function's return value."""
    words = [*container["command"], *container.get("args", ())]
    start = words.index("python")
    message = folder / "termination-log"
    message.unlink(missing_ok=True)
    variables = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", RETURN_VALUE: str(message)}
    command = [sys.executable, "-S", *words[start + 1 :]]
    done = subprocess.run(command, env=variables, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        return done.stderr[-500:]
    return json.loads(return_value_in(message.read_text())) if message.exists() else None


def check(found: Iterable[tuple[Case, Any]]) -> None:
    """Fail with a list of all functions that returned something else."""
    wrong = [
        f"{case.what}: {value!r:.500} instead of {case.expected!r}" for case, value in found if value != case.expected
    ]
    assert not wrong, "\n".join(["wrong:", *wrong])
