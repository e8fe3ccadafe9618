"""Image of the pipelines' step, built by its Dockerfile on a replacement for `python:3.11-slim`, without a registry.

The replacement is Debian's Python 3.11 with what the Dockerfile needs from its base, and about the same size.
"""

from __future__ import annotations

from pathlib import Path

from cluster.buildah import Base
from cluster.built_image import BuiltImage

ROOT = Path(__file__).parents[2]
BASE_STAND_IN = Base(
    repository="localhost/python-slim-stand-in",
    estimate="1 min",
    suite="bookworm",
    packages=("ca-certificates", "python-is-python3", "python3", "python3-venv"),
    environment=("PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",),
)
STEP = BuiltImage(
    name="ghcr.io/ptjob-provider/step:test",
    context=ROOT,
    file=ROOT / "docker" / "step" / "Dockerfile",
    content=("pyproject.toml", "constraints/kfp.txt", "ptjob_provider"),
    base=BASE_STAND_IN,
    import_estimate="10 s",
)
