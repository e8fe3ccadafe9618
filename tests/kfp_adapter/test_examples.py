"""Tests of the components in the example pipelines, called as functions."""

from __future__ import annotations

import json
import runpy
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from kfp import dsl

from installed import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CHAMPION = "pvc://digits/champion"


@pytest.fixture
def claim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of the claim `digits`."""
    monkeypatch.setenv("PTJOB_BACKEND", "local")  # the component reads it when it runs
    monkeypatch.setenv("PTJOB_LOCAL_ROOT", str(tmp_path))
    folder = tmp_path / "claims" / "default" / "digits"
    folder.mkdir(parents=True)
    return folder


def program(pipeline: str, component: str) -> Callable[..., Any]:
    """Return the function of a component in an example."""
    found: Callable[..., Any] = runpy.run_path(str(ROOT / "pipelines" / f"{pipeline}.py"))[component].python_func
    return found


@pytest.mark.parametrize(
    ("accuracy", "before", "said"),
    [
        (0.5, None, "better"),
        (0.5, 0.4, "better"),
        (0.5, 0.5, "not better"),
        ("NaN", 0.4, "not better"),
        (0.5, "NaN", "better"),
    ],
)
def test_a_champion_is_followed_by_what_is_better(claim: Path, accuracy: Any, before: Any, said: str) -> None:
    """A model whose accuracy is NaN never becomes the champion."""
    if before is not None:
        (claim / "champion").mkdir()
        (claim / "champion" / "scalars.json").write_text(json.dumps({"held_out/accuracy": before}))

    compare = program("digits", "compare")

    assert compare(scalars={"held_out/accuracy": accuracy}, champion=CHAMPION) == said


@pytest.mark.parametrize(("accuracy", "kept"), [(0.5, "before"), (0.7, "trained"), (0.8, "trained")])
def test_a_model_that_was_better_when_it_was_compared_replaces_no_better_one(
    claim: Path, accuracy: float, kept: str
) -> None:
    """Another run may have promoted one since. An equal one is promoted: this step may have been ended half-way."""
    promote_to(claim, 0.7, content="before")

    promote_to(claim, accuracy, content="trained")

    assert (claim / "champion" / "model.pt").read_text() == kept


def test_a_promotion_that_breaks_off_leaves_the_champion_as_it_is(claim: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    promote_to(claim, 0.5, content="before")

    def copy_half(source: Path, target: Path) -> None:
        target.write_text("trai")
        raise OSError("no space left on device")

    monkeypatch.setattr(shutil, "copyfile", copy_half)
    with pytest.raises(OSError, match="no space"):
        promote_to(claim, 0.8, content="trained")

    assert {path.name for path in (claim / "champion").iterdir()} == {"model.pt", "scalars.json"}
    assert (claim / "champion" / "model.pt").read_text() == "before"


def promote_to(claim: Path, accuracy: float, *, content: str) -> None:
    """Promote a model of this accuracy."""
    (claim / "trained.pt").write_text(content)
    model = dsl.Model(name="trained", metadata={"uri": "pvc://digits/trained.pt", "model_artifact": "reference"})
    program("digits", "promote")(model=model, scalars={"held_out/accuracy": accuracy}, champion=CHAMPION)


def results(claim: Path, *accuracies: Any) -> list[dict[str, Any]]:
    """Return results of trainings with these accuracies, each with a model."""
    found = []
    for number, accuracy in enumerate(accuracies):
        (claim / f"{number}.pt").write_text(str(number))
        uri = f"pvc://digits/{number}.pt"
        found.append({"model": {"uri": uri}, "tfevents": {"scalars": {"held_out/accuracy": accuracy}}})
    return found


def test_a_sweep_keeps_no_model_whose_accuracy_is_no_number(claim: Path) -> None:
    """The position in the list does not matter."""
    keep_best = program("digits_sweep", "keep_best")

    kept = [
        keep_best(results=results(claim, *values), best=f"{CHAMPION}/m.pt") for values in (("NaN", 0.1), (0.1, "NaN"))
    ]

    assert kept == ["pvc://digits/1.pt", "pvc://digits/0.pt"]
    assert (claim / "champion" / "m.pt").read_text() == "0"
    with pytest.raises(ValueError, match="the accuracy of no training is a number"):
        keep_best(results=results(claim, "NaN"), best=f"{CHAMPION}/m.pt")
