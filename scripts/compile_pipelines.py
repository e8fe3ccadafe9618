"""Compile a release's files for Kubeflow Pipelines as YAML: the component, and every example pipeline.

python scripts/compile_pipelines.py FOLDER
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from kfp import compiler

from ptjob_provider.kfp.component import STEP_IMAGE, component

PIPELINES = Path(__file__).resolve().parent.parent / "pipelines"


def main(folder: Path) -> None:
    """Write `component.yaml` and a file for each pipeline."""
    compiler.Compiler().compile(component(STEP_IMAGE), str(folder / "component.yaml"))
    for file in sorted(PIPELINES.glob("digits*.py")):
        compiler.Compiler().compile(runpy.run_path(str(file))[file.stem], str(folder / f"{file.stem}.yaml"))
    for file in sorted(folder.glob("*.yaml")):
        print(f"{file}  {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
