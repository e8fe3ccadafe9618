"""Tests of the HTML page of curves."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from hypothesis import example, given
from hypothesis import strategies as st

from ptjob_provider.kfp.curves import HEIGHT, WIDTH, page
from rows import each_row


def charts(text: str) -> list[ET.Element]:
    """Return the SVG drawings of a page, which have to be well-formed XML."""
    return [ET.fromstring(found) for found in re.findall(r"<svg.*?</svg>", text)]  # noqa: S314 - our own page


def places(chart: ET.Element) -> list[tuple[float, float]]:
    """Return the coordinates of the points of all lines."""
    return [
        (float(x), float(y))
        for line in chart.iter("polyline")
        for x, y in (pair.split(",") for pair in line.attrib["points"].split())
    ]


def test_there_is_a_chart_for_each_scalar_and_it_says_its_numbers() -> None:
    """The numbers are the last, lowest and highest value with their steps."""
    text = page("ml/digits", {"loss": [[1, 2.5], [2, 0.5], [3, 0.75]], "accuracy": [[1, 0.5]]})

    assert [len(places(chart)) for chart in charts(text)] == [3, 1]
    assert "last 0.75 at step 3; lowest 0.5 at 2, highest 2.5 at 1" in text
    assert "<title>step 2: 0.5</title>" in text


def test_tags_of_scalars_are_escaped_on_the_page() -> None:
    """Tags come from the training program and are escaped."""
    text = page("<b>", {"<script>&\"'": [[1, 1.0]]})

    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert charts(text)


def test_a_curve_is_broken_where_it_is_no_number() -> None:
    """NaN leaves a gap in the curve; a last value that is not finite is shown in the text."""
    text = page("job", {"loss": [[1, 2.0], [2, "NaN"], [3, 1.0], [4, "Infinity"]]})

    (chart,) = charts(text)
    assert [line.attrib["points"].count(",") for line in chart.iter("polyline")] == [1, 1]
    assert "last inf at step 4" in text


@each_row(("curves", "said"), [({}, "no scalars"), ({"loss": [[1, "NaN"]]}, "it has no numeric value")])
def test_a_page_without_curves_says_why(curves: dict[str, list[list[float | str]]], said: str) -> None:
    assert said in page("job", curves)


POINTS = st.tuples(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False))


@given(st.lists(POINTS, min_size=1, max_size=20))
@example([(1, 1.7e308), (2, -1.7e308)])
@example([(1, 5e-324)])
@example([(1, 1e300), (2, -1e300), (3, 1.0)])
def test_every_point_is_inside_its_chart(points: list[tuple[int, float]]) -> None:
    text = page("job", {"loss": [[step, value] for step, value in sorted(points)]})

    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for chart in charts(text) for x, y in places(chart))


@each_row("steps", [[1], [1, 2], [0, 3], [1, 12], [0, 10**6]])
def test_the_axis_of_steps_has_whole_numbers(steps: list[int]) -> None:
    text = page("job", {"loss": [[step, 1.0] for step in steps]})

    labels = re.findall(r'text-anchor="middle">([^<]+)<', text)
    assert 2 <= len(labels) <= 8
    assert [each for each in labels if not float(each).is_integer()] == []
