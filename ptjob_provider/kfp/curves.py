"""Draws curves of a training's scalars as one HTML page that loads nothing: an SVG chart per tag. Pure."""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Points = Sequence[tuple[float, float]]
    Axis = Callable[[float], float]

WIDTH, HEIGHT = 460, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 12, 28
_TICKS = 4
_NICE_STEPS = (1, 2, 5, 10)
_LARGEST, _SMALLEST = 1e300, 1e-290
"""Maximum of a drawn value, and minimum of a range: a training may write any number, and the page ends no step."""

_STYLE = """
:root { color-scheme: light dark; }
body { font: 14px system-ui, sans-serif; margin: 1.5rem; }
h1 { font-size: 1.1rem; } h2 { font-size: .95rem; margin: 0 0 .25rem; overflow-wrap: anywhere; }
main { display: flex; flex-wrap: wrap; gap: 1.5rem; }
figure { margin: 0; width: 460px; max-width: 100%; } figcaption { color: GrayText; font-size: 12px; }
svg { width: 100%; height: auto; font-size: 11px; }
svg text { fill: currentColor; } svg .grid { stroke: currentColor; opacity: .15; }
svg .curve { fill: none; stroke: #2f6fde; stroke-width: 1.8; } svg circle { fill: #2f6fde; }
"""


def page(title: str, curves: Mapping[str, Sequence[Sequence[float | str]]], *, unit: str = "step") -> str:
    """Return the page.

    Args:
        title: name of the training.
        curves: each tag's points as [step, value], by step; NaN and the infinities are texts. These and huge values are
            drawn as gaps.
        unit: what the steps are, such as seconds.
    """
    figures = "\n".join(_figure(tag, points, unit) for tag, points in curves.items())
    body = figures or "<p>The training has written no scalars.</p>"
    name = html.escape(title)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{name}</title>'
        f"<style>{_STYLE}</style></head>\n<body><h1>{name}</h1>\n<main>\n{body}\n</main></body></html>\n"
    )


def _figure(tag: str, points: Sequence[Sequence[float | str]], unit: str) -> str:
    whole = [(float(step), float(value)) for step, value in points]
    finite = [(step, value) for step, value in whole if abs(value) <= _LARGEST]
    title = f"<h2>{html.escape(tag)}</h2>"
    if not finite:
        return f"<figure>{title}<figcaption>it has no numeric value</figcaption></figure>"
    lowest, highest = min(finite, key=lambda point: point[1]), max(finite, key=lambda point: point[1])
    caption = (
        f"last {whole[-1][1]:.6g} at {unit} {whole[-1][0]:.0f}; "
        f"lowest {lowest[1]:.6g} at {lowest[0]:.0f}, highest {highest[1]:.6g} at {highest[0]:.0f}"
    )
    return f"<figure>{title}{_chart(tag, whole, finite, unit)}<figcaption>{caption}</figcaption></figure>"


def _chart(tag: str, whole: Points, finite: Points, unit: str) -> str:
    steps, values = _ticks([step for step, _ in whole], finest=1.0), _ticks([value for _, value in finite])
    x, y = _axis(steps, begin=_LEFT, end=WIDTH - _RIGHT), _axis(values, begin=HEIGHT - _BOTTOM, end=_TOP)
    lines, dots = (_line(piece, x, y) for piece in _pieces(whole)), (_dot(point, x, y, unit) for point in finite)
    drawn = [*_grid(steps, values, x, y), *lines, *dots]
    name = html.escape(tag, quote=True)
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{name}">{"".join(drawn)}</svg>'


def _axis(ticks: Sequence[float], *, begin: float, end: float) -> Axis:
    """Return the function from a value to its pixel."""
    low, high = ticks[0], ticks[-1]
    return lambda value: begin + (value - low) / (high - low) * (end - begin)


def _grid(steps: Sequence[float], values: Sequence[float], x: Axis, y: Axis) -> Iterator[str]:
    for value in values:
        at = y(value)
        yield f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{value:.6g}</text>'
    for step in steps:
        yield f'<text x="{x(step):.1f}" y="{HEIGHT - 8}" text-anchor="middle">{step:.6g}</text>'


def _pieces(points: Points) -> Iterator[Points]:
    """Yield the connected pieces of the curve, which has a gap where a value is not a number."""
    piece: list[tuple[float, float]] = []
    for point in [*points, (0.0, math.nan)]:
        if abs(point[1]) <= _LARGEST:
            piece.append(point)
        elif piece:
            yield piece
            piece = []


def _line(piece: Points, x: Axis, y: Axis) -> str:
    points = " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in piece)
    return f'<polyline class="curve" points="{points}"/>'


def _dot(point: tuple[float, float], x: Axis, y: Axis, unit: str) -> str:
    step, value = point
    text = f"{unit} {step:.0f}: {value:.6g}"
    return f'<circle cx="{x(step):.1f}" cy="{y(value):.1f}" r="2"><title>{text}</title></circle>'


def _ticks(values: Sequence[float], *, finest: float = 0.0) -> Sequence[float]:
    """Return round numbers from the least value or below to the greatest or above, `finest` or more apart."""
    low, high = min(values), max(values)
    size = max(abs(low), abs(high))
    if high - low <= max(size * 1e-9, _SMALLEST):
        around = max(size / 2 if size > _SMALLEST else 0.5, finest)
        low, high = low - around, high + around
    rough = max((high - low) / _TICKS, finest)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(nice * power for nice in _NICE_STEPS if nice * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [index * step for index in range(first, last + 1)]
