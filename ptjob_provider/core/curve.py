"""Keep the course of a training's step and metrics in few points, however long the training lasts. Pure."""

from __future__ import annotations

import json
import math
from array import array
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from ptjob_provider.core.logs import nanoseconds
from ptjob_provider.core.training_progress import MAX_METRICS, is_loss
from ptjob_provider.core.versions import MALFORMED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.training_progress import Progress

MAX_POINTS = 256
"""Maximum points that are kept: a job with 16 metrics takes 80 kB, and one process has the logs of 200 jobs."""

MAX_TAG = 64
"""Maximum characters of a metric's tag; metrics with longer ones have no curve."""

MAX_SIZE = 8 * 1024
"""Characters of JSON that a curve has by default."""

_MOST = 1e30

_FEWEST = 16
"""Number of points below which a curve that is too large loses metrics instead of points."""


class _Point(NamedTuple):
    """State of a training at one moment.

    Attributes:
        step: the step; None if it is unknown.
        at: seconds since 1970.
        values: last values of the curve's tags, as many as the curve had then; NaN for none.
    """

    step: int | None
    at: float
    values: array[float]


class Curve:
    """Collects states of a training; the first and the newest are always kept.

    When it is full, every second point is dropped, and from then on points are kept at twice their distance in time.
    A curve has the MAX_METRICS tags that appeared first.
    """

    def __init__(self) -> None:
        self._tags: list[str] = []
        self._kept: list[_Point] = []
        self._newest: _Point | None = None
        self._gap = 0.0

    def add(self, progress: Progress) -> None:
        """Add the newest state; one of the same step as the state before takes its place.

        Raises:
            ValueError: its time is not an RFC 3339 instant.
        """
        new = [tag for tag in progress.metrics if tag not in self._tags and len(tag) <= MAX_TAG]
        self._tags += new[: MAX_METRICS - len(self._tags)]
        self._add(_point(progress.step, nanoseconds(progress.at) / 1e9, *map(progress.metrics.get, self._tags)))

    def _add(self, point: _Point) -> None:
        before, self._newest = self._newest, point
        if before is None or (point.step is not None and point.step == before.step):
            return
        if self._kept and abs(before.at - self._kept[-1].at) < self._gap:
            return
        self._kept.append(before)
        if len(self._kept) >= MAX_POINTS:
            self._kept = self._kept[::2]
            self._gap = _distance(self._kept)

    def to_dict(self, *, most: int = MAX_SIZE) -> dict[str, Any]:
        """Return columns of equal length, oldest first, thinned until they have at most `most` characters of JSON.

        Numbers have six significant digits.

        Args:
            most: at least 200 characters, which the first and the newest step take.
        """
        points, tags = [*self._kept, *filter(None, [self._newest])], len(self._tags)
        while len(json.dumps(columns := self._columns(points, tags))) > most and (tags or len(points) > 2):  # noqa: PLR2004
            if len(points) > _FEWEST or not tags:
                points = [*points[:-1:2], points[-1]]
            else:
                tags -= 1
        return columns

    def _columns(self, points: list[_Point], tags: int) -> dict[str, Any]:
        metrics = {
            tag: [_short(point.values[index]) if index < len(point.values) else None for point in points]
            for index, tag in enumerate(self._tags[:tags])
        }
        steps, instants = [point.step for point in points], [round(point.at, 1) for point in points]
        return {"step": steps, "at": instants, "metrics": metrics}

    @classmethod
    def from_dict(cls, written: Mapping[str, Any] | None) -> Self:
        """Rebuild a curve from the value of `to_dict`, to go on with it; an empty one from a value that is none."""
        curve = cls()
        try:
            metrics = [*(written or {})["metrics"].items()][:MAX_METRICS]
            rows = zip((written or {})["step"], (written or {})["at"], *(each for _, each in metrics), strict=True)
            points = [_point(*row) for row in rows][-MAX_POINTS:]
        except MALFORMED:
            return curve
        if points:
            curve._tags = [tag for tag, _ in metrics]
            curve._kept, curve._newest, curve._gap = points[:-1], points[-1], _distance(points)
        return curve


def drawable(columns: Mapping[str, Any]) -> tuple[str, dict[str, list[tuple[float, float]]]]:
    """Return the unit of x, and the points of each metric that has two, the training's losses first.

    x is the step. Where steps are unknown or start again, as those of each epoch, it is seconds since the first point.
    Values beyond `_MOST` have no point: no axis shows them beside others.

    Args:
        columns: the value of `Curve.to_dict`.
    """
    steps, at, metrics = columns["step"], columns["at"], columns["metrics"]
    has_steps = None not in steps and steps == sorted(steps)
    xs = steps if has_steps else [each - at[0] for each in at]
    points = {
        tag: [(x, value) for x, value in zip(xs, metrics[tag], strict=True) if value is not None and abs(value) < _MOST]
        for tag in sorted(metrics, key=lambda tag: not is_loss(tag))
    }
    return "step" if has_steps else "second", {tag: each for tag, each in points.items() if len(each) > 1}


def _point(step: int | None, at: float, *values: float | None) -> _Point:
    numbers = array("d", [math.nan if value is None else float(value) for value in values])
    return _Point(None if step is None else int(step), float(at), numbers)


def _distance(points: list[_Point]) -> float:
    """Return the mean seconds between two points; points that are kept later are nearly as far apart."""
    return 0.9 * abs(points[-1].at - points[0].at) / len(points)


def _short(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None
