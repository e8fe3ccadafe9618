"""Take the pictures of the Training page for the documentation: a real API server and browser, trainings as examples.

PYTHONPATH=tests:. .venv/bin/python -m airflow_stack.training_pictures
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

from PIL import Image

import browser as chromium
import training_xcoms as trainings
from airflow_stack.training_server import training_server
from installed import ROOT

IMAGES = ROOT / "docs" / "images"
PICTURES = {
    "training-live": ("manual__2026-11-27T02:00:00+00:00", trainings.RETRIED, "running", "4,500 of 12,000", False),
    "training-failed": ("manual__2026-11-26T02:00:00+00:00", trainings.FAILED, "failed", "failed first", True),
}
"""For each picture: run, XComs, state of the task, a text to wait for, and whether it is in dark colours."""

WIDTH = 1280
COLOURS = 128
"""Colours of a picture: enough for text and curves, and a third of the bytes."""


def main() -> None:
    """Write all pictures."""
    with (
        tempfile.TemporaryDirectory() as folder,
        training_server(Path(folder), "") as server,
        chromium.browser(sys.stderr.write) as browser,
    ):
        for name, (run_id, xcoms, state, text, dark) in PICTURES.items():
            server.put(run_id, xcoms, state=state)
            with browser.page(width=WIDTH, dark=dark, cookies=server.cookies()) as page:
                page.open(server.page("digits", run_id), until=text)
                picture = Image.open(io.BytesIO(page.picture())).convert("RGB")
            picture.quantize(COLOURS).save(IMAGES / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
