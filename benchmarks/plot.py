"""Draw how cost grows with the number of waiting jobs: four small plots, one line for each contender.

    python -m benchmarks.plot FIGURES.json TARGET.svg

It imports nothing of the benchmark, because the environment with matplotlib has no Airflow.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "benchmarks"  # the same figures make the same file

import matplotlib.pyplot as plt  # noqa: E402 - after the back-end has been chosen


def draw(figures: dict[str, dict[str, list[tuple[float, float]]]], target: Path) -> None:
    """Draw title → contender → points (number of jobs, figure) on logarithmic axes."""
    figure, axes = plt.subplots(2, 2, figsize=(11, 8), layout="constrained")
    for plot, (title, lines) in zip(axes.flat, figures.items(), strict=True):
        for name, points in lines.items():
            known = [point for point in points if point[1] > 0]
            plot.plot(*zip(*known, strict=True), marker="o", label=name) if known else None
        plot.set(title=title, xlabel="waiting jobs", xscale="log", yscale="log")
        plot.grid(visible=True, which="major", alpha=0.3)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(target, metadata={"Date": None})


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
