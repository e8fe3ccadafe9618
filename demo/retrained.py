"""Show the results of retraining in a terminal or a picture: a table of models, data versions and accuracies."""

from __future__ import annotations

import io
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.bar import Bar
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from demo.machine import Machine
    from demo.stack import Stack


@dataclass(frozen=True, kw_only=True)
class Retrained:
    """A model, its training data, and its outcome."""

    data_version: str
    new: Sequence[str]
    batches: int
    images: int
    accuracy: float
    is_promoted: bool
    generation: int

    @property
    def outcome(self) -> str:
        """Return the outcome as text."""
        return f"champion {self.generation}" if self.is_promoted else f"refused, champion {self.generation} stays"


def retrained(stack: Stack, place: Machine, dag_id: str, run_id: str) -> Retrained:
    """Return the model of one run, from its tasks' results and the file that rank 0 has written next to the model."""
    claimed, trained, evaluated, promoted = (
        stack.api.xcom(dag_id, run_id, task_id) for task_id in ("claim", "train", "evaluate", "promote")
    )
    model, _ = place.model(trained["model"])
    data: dict[str, Any] = json.loads(Path(model).with_name("trained_on.json").read_text())
    decision = promoted["tfevents"]["scalars"]
    return Retrained(
        data_version=str(data["data_version"]),
        new=[str(uri).rstrip("/").rpartition("/")[2] for uri in claimed["new"]],
        batches=len(data["batches"]),
        images=int(data["images"]),
        accuracy=float(evaluated["tfevents"]["scalars"]["held_out/accuracy"]),
        is_promoted=bool(decision["promotion/promoted"]),
        generation=int(decision["promotion/generation"]),
    )


def table(models: Sequence[Retrained]) -> Table:
    """Return a table of the models, oldest first, with a bar for each accuracy."""
    least = math.floor(min(model.accuracy for model in models) * 10) / 10
    result = Table(title="models", title_justify="left", box=None, header_style="dim")
    for column in ("", "data version", "new", "batches", "images", "accuracy"):
        result.add_column(column, justify="right" if column in {"", "batches", "images", "accuracy"} else "left")
    result.add_column(f"from {least:.0%} to 100%", width=30)
    result.add_column("what became of it")
    for number, model in enumerate(models, start=1):
        colour = "green" if model.is_promoted else "red"
        result.add_row(
            str(number),
            model.data_version,
            " ".join(model.new),
            str(model.batches),
            str(model.images),
            f"{model.accuracy:.4f}",
            Bar(size=1 - least, begin=0, end=model.accuracy - least, color=colour),
            Text(model.outcome, style=colour),
        )
    return result


def picture(models: Sequence[Retrained], path: Path) -> None:
    """Write the table as a self-contained picture."""
    console = Console(record=True, width=132, file=io.StringIO(), force_terminal=True, highlight=False)
    console.print(table(models))
    drawn = console.export_svg(title="make demo-retraining", unique_id="retraining")
    path.write_text(re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL))
