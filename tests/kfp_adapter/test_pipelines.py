"""Tests of every file in pipelines/, copied next to the installed wheel: compiled, compared with outlines, and run."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import kfp
import pytest
import yaml
from kfp import Client, components

from installed import ROOT, install
from kfp_adapter.compiled import load_pipeline
from kfp_adapter.outlines import outline

if TYPE_CHECKING:
    from installed import Installed

OUTLINES = Path(__file__).parent / "golden" / "outlines.yaml"
PIPELINES = ["digits", "digits_copy", "digits_reference", "digits_sweep"]
IS_OLDEST = kfp.__version__.startswith("2.16.")
RUN = """
import importlib, json, sys
from kfp import local
local.init(runner=local.SubprocessRunner(use_venv=False), pipeline_root="artifacts")
name, arguments = sys.argv[1:]
sys.path.insert(0, "pipelines")
getattr(importlib.import_module(name), name)(**json.loads(arguments))
"""


@dataclass(frozen=True, kw_only=True)
class Author:
    """A user with the wheel, kfp and a copy of the examples; jobs are processes on this machine."""

    installed: Installed
    folder: Path

    @property
    def claim(self) -> Path:
        """The directory of the claim `digits`."""
        return self.folder / "jobs" / "claims" / "default" / "digits"

    def compile(self, *arguments: str) -> None:
        """Run Python in the folder, which compiles a pipeline."""
        self.installed.run("python", *arguments, cwd=self.folder)

    def run(self, name: str, **arguments: Any) -> subprocess.CompletedProcess[str]:
        """Run a pipeline to its end; the training programs use the PyTorch of `make demo`."""
        settings = {
            "PTJOB_BACKEND": "local",
            "PTJOB_LOCAL_ROOT": str(self.folder / "jobs"),
            "PTJOB_LOCAL_IMAGES": json.dumps({"ghcr.io/ptjob-provider/digits": str(self.folder / "digits")}),
            "PTJOB_LOCAL_PYTHON": str(ROOT / ".venv" / "bin" / "python"),
        }
        return subprocess.run(
            [self.installed.python, "-c", RUN, name, json.dumps(arguments)],
            cwd=self.folder,
            env={**self.installed.environment({}), **settings},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def author(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Author:
    folder = tmp_path_factory.mktemp("pipelines")
    hidden = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "pipelines", folder / "pipelines", ignore=hidden)
    shutil.copytree(ROOT / "docker" / "digits", folder / "digits", ignore=hidden)
    constraints, extras = ("kfp-oldest", "kfp") if IS_OLDEST else ("kfp", "kfp,demo")
    return Author(installed=install(f"{wheel}[{extras}]", folder / "venv", constraints=constraints), folder=folder)


def find(pattern: str, text: str) -> tuple[str, ...]:
    """Return the groups of the pattern's only match."""
    (match,) = re.finditer(pattern, text, re.MULTILINE)
    return match.groups()


def check_outline(name: str, file: Path) -> None:
    """Compare the outline of a compiled file with the committed one."""
    found = outline(load_pipeline(file))
    outlines = yaml.safe_load(OUTLINES.read_text())
    if os.environ.get("PTJOB_WRITE_GOLDEN") and not IS_OLDEST:
        text = yaml.safe_dump({**outlines, name: found}, default_flow_style=None, width=120)
        OUTLINES.write_text(text)
    later, oldest = "backoffMaxDuration: 86400s", "backoffMaxDuration: 3600s"
    read = yaml.safe_dump(outlines[name])
    assert yaml.safe_dump(found) == (read.replace(later, oldest) if IS_OLDEST else read)


def test_a_release_ships_the_component_and_every_pipeline(tmp_path: Path) -> None:
    """The outlines show a change of the public interface; PTJOB_WRITE_GOLDEN=1 writes them again.

    They are the same for the oldest and the newest kfp, except that 2.16 always has a maximum backoff of one hour.
    """
    command = [sys.executable, str(ROOT / "scripts" / "compile_pipelines.py"), str(tmp_path)]
    subprocess.run(command, check=True, env={**os.environ, "PTJOB_STEP_IMAGE": ""})

    assert {file.stem for file in tmp_path.iterdir()} == {"component", *PIPELINES}
    loaded = components.load_component_from_file(str(tmp_path / "component.yaml"))
    required = {name for name, each in loaded.component_spec.inputs.items() if not each.optional}
    assert required == {"pipeline_run_id", "pipeline_task_name", "pipeline_task_id"}
    for name in ("component", *PIPELINES):
        check_outline(name, tmp_path / f"{name}.yaml")


@pytest.mark.skipif(IS_OLDEST, reason="needs kfp 2.17: kfp.local of 2.16 leaves a dsl.If out")
def test_the_pipeline_trains_evaluates_and_promotes_what_is_better(author: Author) -> None:
    first = author.run("digits", epochs=6)
    champion = (author.claim / "champion" / "model.pt").read_bytes()
    second = author.run("digits", epochs=1, workers=1, lr=0.0001)

    assert (first.returncode, second.returncode) == (0, 0), first.stdout + second.stdout
    assert "epoch 6/6" in first.stdout
    assert "rank 0 of 1" in second.stdout
    (path,) = find(r"pvc://digits/(\S+) is the champion now: pvc://digits/champion/model.pt$", first.stdout)
    assert (author.claim / path).read_bytes() == champion
    assert "is the champion now" not in second.stdout
    assert (author.claim / "champion" / "model.pt").read_bytes() == champion


def test_the_curves_are_a_page_that_loads_nothing(author: Author) -> None:
    """The page has a chart for each scalar, and no URL."""
    ran = author.run("digits_reference")

    assert ran.returncode == 0, ran.stdout
    (page,) = (author.folder / "artifacts").glob("digits-reference-*/pytorchjob/curves")
    text = page.read_text()
    assert [tag for tag in ("train/loss", "held_out/accuracy") if f"<h2>{tag}</h2>" not in text] == []
    assert not re.search(r"https?:|src=|@import|url\(", text)


@pytest.mark.skipif(IS_OLDEST, reason="needs kfp 2.17, whose environment also has PyTorch")
def test_a_stock_component_reads_a_model_that_was_copied(author: Author) -> None:
    """The component does not use this package, and reads the same bytes that were trained."""
    ran = author.run("digits_copy")

    assert ran.returncode == 0, ran.stdout
    path, sha256 = find(r"\d+ parameters in (\S+), sha256 (\w+)$", ran.stdout)
    assert hashlib.sha256(Path(path).read_bytes()).hexdigest() == sha256


@pytest.mark.skipif(IS_OLDEST, reason="needs kfp 2.17: kfp.local of 2.16 does not know what a loop's tasks return")
def test_the_sweep_keeps_the_best_of_its_trainings(author: Author) -> None:
    ran = author.run("digits_sweep", epochs=2)

    assert ran.returncode == 0, ran.stdout
    accuracies = re.findall(r"pvc://digits/(\S+): accuracy (\S+)$", ran.stdout, re.MULTILINE)
    (best,) = find(r"best is pvc://digits/(\S+), kept as pvc://digits/best/model.pt$", ran.stdout)
    assert {Path(path).parent.name for path, _ in accuracies} == {"0.0003", "0.003", "0.03"}
    assert best == max(accuracies, key=lambda pair: float(pair[1]))[0]
    assert (author.claim / "best" / "model.pt").read_bytes() == (author.claim / best).read_bytes()


def test_the_pipeline_that_the_page_shows_is_compiled(author: Author) -> None:
    page = ROOT / "docs" / "how-to" / "kubeflow-pipelines.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    shown = next(block for block in blocks if "@dsl.pipeline" in block)
    (author.folder / "shown.py").write_text(shown)

    author.compile("shown.py")


class ClientStandIn:
    """Records calls of kfp's client, and checks their signatures.

    Attributes:
        asked: Names of the calls that start something, and their parameters.
        recurring: Ids of the recurring runs; the names of all of them are equal.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.recurring: list[str] = []

    def list_recurring_runs(self, *, experiment_id: str, page_size: int, filter: str) -> Any:  # noqa: A002
        asked = json.loads(filter)["predicates"]
        assert asked == [{"operation": "EQUALS", "key": "display_name", "stringValue": "digits-nightly"}]
        runs = [SimpleNamespace(recurring_run_id=each) for each in self.recurring]
        return SimpleNamespace(recurring_runs=runs or None)

    def delete_recurring_run(self, recurring_run_id: str) -> None:
        self.recurring.remove(recurring_run_id)

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            bound = inspect.signature(getattr(Client, name)).bind(self, *args, **kwargs).arguments
            given = bound.get("arguments", bound.get("params")) or {}
            self.asked.append((name, given))
            if name == "create_recurring_run":
                assert bound["job_name"] == "digits-nightly"
                self.recurring.append(f"recurring-{len(self.asked)}")
            return SimpleNamespace(experiment_id="e", run_id="r")

        return call


def start_runs(
    author: Author, monkeypatch: pytest.MonkeyPatch, *words: str, client: ClientStandIn | None = None
) -> ClientStandIn:
    """Run start_runs.py with these arguments."""
    client = client or ClientStandIn()
    namespace: dict[str, Any] = {"__name__": "start_runs", "__doc__": "Start runs."}
    exec((author.folder / "pipelines" / "start_runs.py").read_text(), namespace)  # noqa: S102 - our own example
    namespace["Client"] = lambda **_: client
    package = str(author.folder / "digits.yaml")
    monkeypatch.setattr(sys, "argv", ["start_runs.py", *words, "--package", package])
    namespace["main"]()
    return client


@pytest.fixture(scope="module")
def compiled_digits(author: Author) -> None:
    author.compile("pipelines/digits.py")


@pytest.mark.usefixtures("compiled_digits")
def test_runs_are_started_with_values_of_the_parameters_types(author: Author, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every night, or when data arrives; the API server accepts no string for a number."""
    words = ["--host", "http://localhost:8080", "epochs=2", "lr=1e-4", "image=mirror/digits:2"]
    values = {"epochs": 2, "lr": 0.0001, "image": "mirror/digits:2"}

    nightly = start_runs(author, monkeypatch, "nightly", *words).asked
    arrived = start_runs(author, monkeypatch, "arrived", *words).asked

    assert nightly == [("create_experiment", {}), ("create_recurring_run", values)]
    assert arrived == [("create_run_from_pipeline_package", values)]


@pytest.mark.usefixtures("compiled_digits")
def test_nightly_runs_that_are_started_again_replace_the_earlier_ones(
    author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = start_runs(author, monkeypatch, "nightly")
    [first] = client.recurring

    start_runs(author, monkeypatch, "nightly", "epochs=2", client=client)

    assert len(client.recurring) == 1
    assert client.recurring != [first]


@pytest.mark.usefixtures("compiled_digits")
@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("epochs", "epochs: write NAME=VALUE"),
        ("epoch=2", "epoch: digits.yaml has no such parameter; it has champion, epochs, image, lr, workers"),
        ("epochs=two", "epochs: 'two' is not allowed; allowed is a whole number"),
        ("epochs=2.5", "epochs: '2.5' is not allowed; allowed is a whole number"),
        ("lr=true", "lr: 'true' is not allowed; allowed is a number"),
    ],
)
def test_a_wrong_parameter_starts_no_run(
    author: Author, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], word: str, said: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        start_runs(author, monkeypatch, "arrived", word)

    assert ended.value.code == 2
    assert said in capsys.readouterr().err
