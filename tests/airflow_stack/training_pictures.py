"""Take the pictures of the Training page for the documentation: real trainings in a whole Airflow, a real browser.

PYTHONPATH=tests:. .venv/bin/python -m airflow_stack.training_pictures
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

from PIL import Image

import browser as chromium
from airflow_stack.conftest import _end_jobs
from demo.stack import Stack, StackConfig
from installed import ROOT

HERE = Path(__file__).parent
IMAGES = ROOT / "docs" / "images"
WIDTH = 1280
COLOURS = 128
"""Colours of a picture: enough for text and curves, and a third of the bytes."""

STEP = 1200
"""Step from which the live training has a curve to look at."""

TIMEOUT = 900
"""Seconds for both trainings."""


def main(images: Path = IMAGES) -> None:
    """Write both pictures: a live training with an earlier attempt, and a failed one in dark colours."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            with Stack(config(Path(folder))) as stack:
                write_pictures(stack, images)
        finally:
            _end_jobs(Path(folder) / "jobs")


def write_pictures(stack: Stack, images: Path) -> None:
    """Start both trainings, wait until there is something to look at, and take the pictures."""
    (stack.config.home.parent / "jobs" / "claims" / "default" / "runs").mkdir(parents=True)
    for dag_id in ("digits", "segments"):
        stack.api.wait_for_dag(dag_id)
    live, failed = (stack.api.trigger(dag_id) for dag_id in ("digits", "segments"))
    stack.api.wait_for_task("segments", failed, "train", timeout=TIMEOUT)
    wait_for_step(stack, live)
    pictures = (("training-live", "digits", live, False), ("training-failed", "segments", failed, True))
    with chromium.browser(sys.stderr.write) as browser:
        for name, dag_id, run_id, dark in pictures:
            path = f"dags/{dag_id}/dagRuns/{quote(run_id, safe='')}/taskInstances/train/links"
            link = stack.api.get(path)["extra_links"]["Training"]
            with browser.page(width=WIDTH, dark=dark, cookies={"_token": stack.api._access_token()}) as page:
                page.open(f"{stack.url}/{link}", until="Elsewhere")
                picture = Image.open(io.BytesIO(page.picture())).convert("RGB")
            picture.quantize(COLOURS).save(images / f"{name}.png", optimize=True)


def config(root: Path) -> StackConfig:
    """Return the settings of an Airflow whose jobs run on this machine."""
    settings = {
        "PTJOB__BACKEND": "local",
        "PTJOB__LOCAL_ROOT": str(root / "jobs"),
        "PTJOB__LOCAL_IMAGES": json.dumps({"program": str(HERE / "picture_image")}),
    }
    return StackConfig(
        home=root / "home",
        dags=HERE / "picture_dags",
        settings={f"AIRFLOW__{name}": value for name, value in settings.items()},
        paused_at_creation=False,
    )


def wait_for_step(stack: Stack, run_id: str) -> None:
    """Wait until the second attempt of the live training is far enough.

    Raises:
        TimeoutError: it is not, in time.
    """
    deadline = time.monotonic() + TIMEOUT
    while True:
        progress = stack.api.xcom("digits", run_id, "train", "progress") or {}
        if progress.get("attempt") == 2 and (progress.get("step") or 0) >= STEP:
            return
        if time.monotonic() > deadline or stack.api.run("digits", run_id)["state"] == "failed":
            raise TimeoutError(f"the training is at {progress.get('step')} of attempt {progress.get('attempt')}")
        time.sleep(1)


if __name__ == "__main__":
    main()
