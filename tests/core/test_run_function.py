"""Tests of the program that runs a function in a pod: arguments, return values, exceptions and the process itself."""

from __future__ import annotations

import collections.abc  # noqa: TC003 - type hints that are evaluated
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any, Literal, NewType

import pytest

from core.odd_values import nested
from function_text import from_text
from pods import container, look, pod
from pods import ended as terminated
from ptjob_provider.core.code import program
from ptjob_provider.core.code.arguments import check_hints, plain_arguments
from ptjob_provider.core.code.function import from_function
from ptjob_provider.core.code.program import return_value_in
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.history import PodHistory, to_text
from ptjob_provider.core.history import from_text as history_from
from ptjob_provider.core.in_pod import run_function
from rows import each_row

if TYPE_CHECKING:
    from somewhere import Unknown


class Mode(Enum):
    FAST = "fast"
    SLOW = 2


@dataclass(frozen=True)
class Layer:
    size: int
    modes: tuple[Mode, ...] = ()


@dataclass
class Config:
    rate: float
    layers: list[Layer]
    place: Path | None = None


Label = NewType("Label", str)


def train(
    config: Config | None = None,
    *rest: Mode,
    mode: Mode = Mode.FAST,
    pair: tuple[int, str] = (1, "a"),
    many: collections.abc.Sequence[tuple[int, ...]] = (),
    named: collections.abc.Mapping[str, Layer] | None = None,
    at: datetime | None = None,
    day: date | None = None,
    place: Path | int = 0,
    kind: Literal["a", "b"] = "a",
    rate: float = 0.1,
    unknown: Unknown | None = None,
    plainly: Any = None,
    number: int | str = 0,
    label: Label = Label(""),
    **names: Layer,
) -> Any:
    return repr(locals())


@dataclass
class Ended:
    code: int
    reported: str
    error: str


def ended(text: str, *words: str, cwd: Path, **environ: str) -> Ended:
    """Run a program in a process of its own, in a directory without this package."""
    reported = cwd / "termination-log"
    reported.unlink(missing_ok=True)
    (cwd / "program.py").write_text(text, encoding="utf-8")
    variables = {"PATH": os.environ["PATH"], run_function.RETURN_VALUE: str(reported), **environ}
    command = [sys.executable, "-I", "-S", *(words or ["program.py"])]
    done = subprocess.run(command, env=variables, cwd=cwd, capture_output=True, check=False)
    return Ended(
        code=done.returncode, reported=reported.read_text() if reported.exists() else "", error=done.stderr.decode()
    )


def returned(text: str, *args: Any, cwd: Path, **environ: str) -> Ended:
    source = from_text(dedent(text), "train", file="/dags/case.py")
    return ended(program.script(source, args), cwd=cwd, **environ)


# --- arguments


@each_row(
    ("args", "kwargs"),
    [
        ([Config(1.5, []), Mode.SLOW, Mode.FAST], {"mode": Mode.SLOW}),
        ([None], {"pair": (2, "b"), "many": [(1, 2), ()], "named": {"x": Layer(3)}}),
        ([], {"at": datetime(2026, 1, 2, 3, tzinfo=UTC), "day": date(2026, 1, 2), "place": Path("a")}),
        ([], {"place": 3, "kind": "b", "rate": float("nan"), "plainly": {"a": [1, None, True]}}),
        ([], {"rate": float("-inf"), "number": "1", "unknown": 3, "label": "x", "first": Layer(1, (Mode.FAST,))}),
    ],
)
def test_arguments_arrive_as_they_were_given(tmp_path: Path, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Rebuilt from the type hints, in a process that has neither this package nor this file."""
    plain_args, plain_kwargs = plain_arguments(train, args, kwargs)

    found = ended(program.script(from_function(train), plain_args, plain_kwargs), cwd=tmp_path)

    assert (found.code, found.error) == (0, "")
    assert json.loads(found.reported)[run_function.KEY] == train(*args, **kwargs)


class Model:
    """Has no JSON form."""


@dataclass
class Part:
    model: Model
    part: Part | None = None


def takes_model(model: Model) -> None: ...
def takes_models(models: list[Model] | None, text: str = "") -> None: ...
def takes_pair(pair: tuple[int, Model]) -> None: ...
def takes_part(part: Part) -> None: ...
def takes_all(*args: Model) -> None: ...


@each_row(
    ("function", "kwargs", "hint"),
    [
        (takes_model, {"model": None}, "'model' of type .*Model"),
        (takes_models, {"models": None}, r"'models' of type list\[.*Model\] \| None"),
        (takes_pair, {"pair": None}, r"'pair' of type tuple\[int, .*Model\]"),
        (takes_part, {"part": None}, "'part' of type .*Part"),
    ],
)
def test_a_type_that_json_has_no_form_of_is_refused_without_a_value(
    function: Any, kwargs: dict[str, Any], hint: str
) -> None:
    """XComs have no values yet when a DAG is parsed."""
    with pytest.raises(InvalidSpec, match=f"argument {hint}.* is not allowed; allowed: JSON values.*; pass the parts"):
        check_hints(function, [], kwargs)


def test_types_of_arguments_that_are_not_given_do_not_matter() -> None:
    """Their defaults are created in the pod."""

    def steps(count: int = 1, model: Model | None = None) -> None: ...

    assert plain_arguments(steps, [], {"count": 2}) == ([], {"count": 2})
    with pytest.raises(InvalidSpec, match=r"argument 'args' of type .*Model"):
        check_hints(takes_all, [1], {})


@each_row(
    ("kwargs", "words"),
    [
        ({"count": 1}, "missing a required argument: 'model'"),
        ({"nothing": 1}, "got an unexpected keyword argument 'nothing'"),
    ],
)
def test_a_call_that_the_function_does_not_take_is_refused(kwargs: dict[str, Any], words: str) -> None:
    def steps(model: int, count: int = 1) -> None: ...

    with pytest.raises(InvalidSpec, match=f"function steps: ({words}).*; allowed: .*; correct the call"):
        check_hints(steps, [], kwargs)


@each_row(
    "value",
    [
        Model(),
        (1, 2),
        {"a": (1,)},
        {1: 2},
        Path("a"),
        Mode.FAST,
        float("nan"),
        datetime(2026, 1, 1, tzinfo=UTC),
        b"bytes",
    ],
)
def test_a_value_that_would_arrive_as_another_is_refused(value: Any) -> None:
    """Without a type hint for its type; the message shows the value."""

    def steps(plainly: Any) -> None: ...

    with pytest.raises(InvalidSpec, match=r"argument 'plainly' with the value .* is not allowed; allowed: JSON values"):
        plain_arguments(steps, [value], {})


def test_a_value_that_does_not_fit_its_hint_is_refused() -> None:
    def steps(
        layer: Layer | None = None, day: date = date.min, pair: tuple[int, int] = (0, 0), mode: Mode = Mode.FAST
    ) -> None: ...

    for kwargs in ({"layer": Config(1, [])}, {"day": "soon"}, {"pair": (1, 2, 3)}, {"mode": "faster"}):
        with pytest.raises(InvalidSpec, match=f"argument '{next(iter(kwargs))}' with the value"):
            plain_arguments(steps, [], kwargs)


# --- return values


@each_row(
    ("expression", "value"),
    [
        ("1.5", 1.5),
        ("{'größe': [1, None, True, (2,)]}", {"größe": [1, None, True, [2]]}),
        ("[float('nan'), float('inf'), -float('inf')]", ["NaN", "Infinity", "-Infinity"]),
        ("Best(0.5, pathlib.Path('/data/model.pt'))", {"loss": 0.5, "path": "/data/model.pt"}),
        ("{'loss': Scalar()}", {"loss": 2.5}),
        ("None", None),
    ],
)
def test_the_return_value_of_rank_0_is_reported(tmp_path: Path, expression: str, value: Any) -> None:
    """As JSON; a number of NumPy or PyTorch is a number."""
    text = f"""
        import dataclasses, pathlib
        @dataclasses.dataclass
        class Best:
            loss: float
            path: pathlib.Path
        class Scalar:
            ndim = 0
            def item(self): return 2.5
        def train(): return {expression}
    """

    found = returned(text, cwd=tmp_path)

    assert (found.code, found.error) == (0, "")
    assert return_value_in(found.reported) == ("" if value is None else json.dumps(value))


@each_row(
    ("expression", "words"),
    [
        ("object()", "TypeError: train returned a builtins.object; allowed: JSON values, dataclasses"),
        ("{1: 2}", "TypeError: train returned a map with 1 as a key, which is no text; allowed"),
        ("iter([])", "TypeError: train returned a builtins.list_iterator"),
        ("'x' * 5000", "ValueError: train returned 5,025 bytes of JSON; allowed: 4,096; write it to a claim"),
    ],
)
def test_a_return_value_that_cannot_be_reported_fails_the_run(tmp_path: Path, expression: str, words: str) -> None:
    """A lost value is an error at once."""
    found = returned(f"def train(): return {expression}", cwd=tmp_path)

    assert (found.code, found.reported) == (1, "")
    assert words in found.error


def test_only_rank_0_reports_its_return_value(tmp_path: Path) -> None:
    """By torchrun's rank of the process, otherwise by the operator's rank of the pod."""
    text = "def train(): return 1"

    reported = [returned(text, cwd=tmp_path, **rank).reported for rank in ({"RANK": "1"}, {"PET_NODE_RANK": "1"})]
    both = returned(text, cwd=tmp_path, RANK="0", PET_NODE_RANK="1").reported

    assert (reported, both) == (["", ""], '{"ptjob_return_value":1}')


def test_the_folder_of_the_model_is_there(tmp_path: Path) -> None:
    """Rank 0 creates it; without permission, the function's own error shows it."""
    text = "import os\ndef train(): open(os.environ['PTJOB_MODEL_PATH'], 'w').close()"
    model = tmp_path / "runs" / "1" / "m.pt"
    (tmp_path / "file").touch()

    other = returned("def train(): pass", cwd=tmp_path, RANK="1", PTJOB_MODEL_PATH=str(model))
    assert (other.code, model.parent.exists()) == (0, False)

    assert returned(text, cwd=tmp_path, PTJOB_MODEL_PATH=str(model)).code == 0
    assert model.exists()
    refused = returned(text, cwd=tmp_path, PTJOB_MODEL_PATH=str(tmp_path / "file" / "m.pt"))
    assert "NotADirectoryError" in refused.error


def test_no_return_value_is_reported_without_a_file_for_it(tmp_path: Path) -> None:
    """A person may run the script."""
    assert returned("def train(): return object()", cwd=tmp_path, **{run_function.RETURN_VALUE: ""}).code == 0


@each_row(
    "message", ["", "Traceback (most recent call last):", "1", "[]", '{"a": 1}', '{"ptjob_return_value": 1, "b": 2}']
)
def test_the_end_of_a_log_is_no_return_value(message: str) -> None:
    """The last lines of a failed container are kept apart from rank 0's return value."""
    assert return_value_in(message) == ""


# --- from the termination message to the record of the job's pods


RETURNED = '{"ptjob_return_value":{"loss":0.5}}'


def test_a_return_value_is_recorded_and_is_no_message() -> None:
    """It stays after the pod is gone, in another process as well, and another replica's end does not take it away."""
    record = look(PodHistory(), pod(container(terminated(0, message=RETURNED)), phase="Succeeded"))
    after = look(record, pod(container(terminated(0)), phase="Succeeded", uid="u2"))

    kept = look(history_from(to_text(after)))

    assert (kept.returned, [end.message for end in kept.terminations]) == ('{"loss": 0.5}', ["", ""])


def test_the_log_of_a_pod_that_failed_after_rank_0_returned_is_read() -> None:
    """Another rank of the pod failed: its exception is in the log, not in the message."""
    record = look(PodHistory(), pod(container(terminated(1, message=RETURNED)), phase="Failed"))

    assert [end.message for end in record.silent_ends()] == [""]


def test_a_message_of_brackets_is_no_return_value() -> None:
    """Python's parser ends with RecursionError there; the job is followed all the same."""
    try:
        record = look(
            PodHistory(), pod(container(terminated(1, message=f'{{"{run_function.KEY}":' + "[" * 4000)), phase="Failed")
        )
    except RecursionError:
        pytest.fail("the job cannot be followed")

    assert record.returned == ""


def test_a_return_value_with_unstorable_parts_arrives_with_them_replaced(tmp_path: Path) -> None:
    """A training that has succeeded does not fail for it; what cannot be stored is replaced, and the log says so."""
    message = tmp_path / "message"
    try:
        run_function.report("fit", {"half": "\ud800", "nul": "a\0", "seed": 2**64, "ü": "\U0001f600"}, str(message))
    except ValueError:
        pytest.fail("the training fails")

    record = look(PodHistory(), pod(container(terminated(0, message=message.read_text())), phase="Succeeded"))

    assert json.loads(record.returned) == {"half": "\ufffd", "nul": "a\ufffd", "seed": str(2**64), "ü": "\U0001f600"}
    (notice,) = record.notices
    assert "return_value.half (NUL or half of a surrogate pair)" in notice
    assert "return_value.seed (an integer beyond 64 bits)" in notice


def test_a_handwritten_message_may_have_what_only_python_reads() -> None:
    record = look(
        PodHistory(), pod(container(terminated(0, message=f'{{"{run_function.KEY}": [NaN, -Infinity, 1e999]}}')))
    )

    assert json.loads(record.returned) == ["NaN", "-Infinity", "Infinity"]


def test_a_return_value_of_too_many_levels_is_an_error_that_names_the_function(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="fit returned maximum recursion depth exceeded"):
        run_function.report("fit", nested(2000), str(tmp_path / "message"))


# --- exceptions


def test_an_exception_names_the_authors_file_and_line(tmp_path: Path) -> None:
    """As if the file had been run, with the line itself; the file need not exist."""
    text = """
        RATE = 0

        def helper(x):
            return x / RATE

        def unused(): pass

        def train(x):
            try:
                return helper(x)
            except ZeroDivisionError as error:
                raise RuntimeError("größer") from error
    """

    found = returned(text, 1, cwd=tmp_path)

    assert found.code == 1
    places = [line.strip() for line in found.error.splitlines() if "File " in line]
    assert places == [
        'File "/dags/case.py", line 11, in train',
        'File "/dags/case.py", line 5, in helper',
        'File "/dags/case.py", line 13, in train',
    ]
    assert "    return x / RATE" in found.error
    assert found.error.splitlines()[-2:] == ["RuntimeError: größer", "raised in train (dags/case.py, line 13)"]


@each_row(
    ("text", "last", "place"),
    [
        ("def train(a=1 / 0): return a", "ZeroDivisionError: division by zero", "line 1, in <module>"),
        ("def train(a): pass", "TypeError: missing a required argument: 'a'", "in main"),
    ],
)
def test_an_exception_before_the_function_runs_names_its_place_as_well(
    tmp_path: Path, text: str, last: str, place: str
) -> None:
    """While its imports and definitions run."""
    found = returned(text, cwd=tmp_path)

    assert found.code == 1
    assert place in found.error
    assert [line for line in found.error.splitlines() if not line.startswith("raised in ")][-1].startswith(last)


def test_a_traceback_names_the_file_of_a_module_that_was_sent(tmp_path: Path) -> None:
    """By its path in the package, not by this run's directory."""
    (tmp_path / "tools_of_mine.py").write_text("def fail():\n    return 1 / 0\n")
    text = "import tools_of_mine\ndef train(): tools_of_mine.fail()\n"
    source = from_text(text, "train", file=str(tmp_path / "case.py"), modules=["tools_of_mine"])
    (tmp_path / "pod").mkdir()

    found = ended(program.script(source), cwd=tmp_path / "pod")

    assert 'File "tools_of_mine.py", line 2, in fail' in found.error


@each_row(("statement", "code"), [("sys.exit(3)", 3), ("sys.exit()", 0), ("sys.exit('no data')", 1)])
def test_a_function_may_end_the_process(tmp_path: Path, statement: str, code: int) -> None:
    assert returned(f"import sys\ndef train(): {statement}", cwd=tmp_path).code == code


# --- the process


def test_the_source_of_its_classes_can_be_read(tmp_path: Path) -> None:
    """As TorchScript does."""
    text = """
        import inspect
        class Net:
            SIZE = 1
        def helper(): pass
        def train(): return [inspect.getsource(Net), inspect.getsource(helper)]
    """

    found = returned(text, cwd=tmp_path)

    assert json.loads(return_value_in(found.reported)) == [
        "class Net:\n    SIZE = 1\n",
        "def helper(): pass\n",
    ]


def test_a_run_leaves_no_temporary_files(tmp_path: Path) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()

    codes = [returned(f"def train(): return {value}", cwd=tmp_path, TMPDIR=str(folder)).code for value in ("1", "1/0")]

    assert (codes, list(folder.iterdir())) == ([0, 1], [])


# --- the command


def test_the_command_is_one_argument_that_nothing_rewrites(tmp_path: Path) -> None:
    """No reference for the kubelet, no template; torchrun starts a program that is not a file."""
    source = from_text("def train(a): return a", "train", file="/dags/case.py")

    command = program.job_command(source, lambda a: a, ["$(HOME) {{ ds }} größer"], {})
    by_torchrun = program.job_command(source, lambda a: a, [1], {}, fields={"nproc_per_node": 2})

    assert not set("${") & set("".join(command))
    assert json.loads(return_value_in(ended("", *command[1:], cwd=tmp_path).reported)) == "$(HOME) {{ ds }} größer"
    assert by_torchrun[:4] == ["torchrun", "--no-python", "python", "-c"]


def test_late_arguments_follow_the_command(tmp_path: Path) -> None:
    """A pipeline has their values at run time: strings as they are, all others as JSON, rebuilt from the type hints."""
    late = [("place", False), ("config", True)]
    kwargs = {"place": object(), "config": object(), "plainly": 1}

    command = program.job_command(from_function(train), train, [], kwargs, late=late)

    found = ended("", *command[1:], '3 "b" {{', '{"rate": 1, "layers": [{"size": 2}]}', cwd=tmp_path)
    expected = train(Config(1, [Layer(2)]), place=Path('3 "b" {{'), plainly=1)
    assert json.loads(found.reported)[run_function.KEY] == expected


def test_a_program_that_is_too_large_for_a_command_is_refused() -> None:
    noise = os.urandom(100_000).hex()
    source = from_text("def train(a): return a", "train", file="/dags/case.py")

    with pytest.raises(InvalidSpec, match=r"function train: \d+,\d+ bytes, compressed.*allowed: 122,880; let code"):
        program.job_command(source, lambda a: a, [noise], {})
