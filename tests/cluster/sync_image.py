"""Image that copies code into pods, built by its Dockerfile on the step image's replacement for `python:3.11-slim`."""

from __future__ import annotations

from cluster.built_image import BuiltImage
from cluster.step_image import BASE_STAND_IN, ROOT

SYNC = BuiltImage(
    name="ghcr.io/ptjob-provider/sync:test",
    context=ROOT,
    file=ROOT / "docker" / "sync" / "Dockerfile",
    content=("ptjob_provider/core/in_pod/sync_code.py",),
    base=BASE_STAND_IN,
    import_estimate="10 s",
)
