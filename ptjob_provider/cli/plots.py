"""Plot a training's metrics in the terminal."""

from __future__ import annotations

import shutil
import sys
from itertools import pairwise
from typing import TYPE_CHECKING

import plotille
from rich.columns import Columns
from rich.panel import Panel
from rich.text import Text

from ptjob_provider.cli.output import printable
from ptjob_provider.cli.tables import draw
from ptjob_provider.core.curve import drawable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ptjob_provider.core.curve import Curve

    Points = Sequence[tuple[float, float]]

_MOST = 4
_HEIGHT = 5
_NARROWEST, _WIDEST = 40, 60
"""Columns of a plot with its border."""


def show(curve: Curve) -> None:
    """Print plots of up to four metrics; nothing where stdout is no terminal, or one that has no Braille dots."""
    if not sys.stdout.isatty() or not (sys.stdout.encoding or "").lower().startswith("utf"):
        return
    unit, points = drawable(curve.to_dict())
    chosen = [*points.items()][:_MOST]
    if chosen:
        width = shutil.get_terminal_size().columns
        width = min(width // max(1, min(len(chosen), width // _NARROWEST)), _WIDEST)
        draw(Columns([_plot(tag, each, unit, width) for tag, each in chosen], padding=0))


def _plot(tag: str, points: Points, unit: str, width: int) -> Panel:
    (begin, _), (end, last) = points[0], points[-1]
    values = [value for _, value in points]
    span = f"{min(values):.4g} to {max(values):.4g}, {unit} {begin:.0f} to {end:.0f}"
    canvas = plotille.Canvas(width - 4, _HEIGHT)
    for (x0, y0), (x1, y1) in pairwise(zip(_scaled([x for x, _ in points]), _scaled(values), strict=True)):
        canvas.line(x0, y0, x1, y1)
    title = Text(printable(f"{tag} {last:.4g}").replace("\n", " "))
    return Panel(canvas.plot(), title=title, subtitle=Text(span), width=width, border_style="dim")


def _scaled(values: Sequence[float]) -> list[float]:
    """Return the values between 0 and 1, all in the middle if they are equal."""
    low, high = min(values), max(values)
    return [(value - low) / (high - low) if high > low else 0.5 for value in values]
