"""Tests of functions in the example DAGs, called without a run; tests/examples runs the DAGs."""

from __future__ import annotations

import runpy
from typing import Any

import pytest

from installed import ROOT


def best(*accuracies: Any) -> Any:
    """Return the model that the sweep selects from trainings with these accuracies."""
    dag = runpy.run_path(str(ROOT / "dags" / "digits_sweep.py"))["dag"]
    results = [
        {"model": {"uri": f"pvc://digits/{number}.pt"}, "tfevents": {"scalars": {"held_out/accuracy": accuracy}}}
        for number, accuracy in enumerate(accuracies)
    ]
    return dag.get_task("best").python_callable(results)["uri"]


def test_a_sweep_selects_no_model_whose_accuracy_is_no_number() -> None:
    """The position in the list does not matter."""
    assert best("NaN", 0.1, 0.2) == "pvc://digits/2.pt"
    assert best(0.2, "NaN", 0.1) == "pvc://digits/0.pt"
    with pytest.raises(ValueError, match="the accuracy of no training is a number"):
        best("NaN", "NaN", "NaN")
