"""Run one pipeline with Kubeflow Pipelines' own runner, each step as a process of this machine; see `demo.kfp`.

python -m demo.kfp_runner PIPELINE.py PIPELINE_ROOT
"""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path
from typing import Any

# Otherwise, the runner imports this repository's folder `docker` (of Dockerfiles) as the package of that name.
sys.modules["docker"] = None  # type: ignore[assignment]


def main() -> None:
    """Run the pipeline that has the file's name; an error ends the process with its traceback."""
    from kfp import local  # noqa: PLC0415 - imported after the entry in sys.modules

    file, root = Path(sys.argv[1]), sys.argv[2]
    warnings.filterwarnings(
        "ignore", message="You may be attemping", category=RuntimeWarning
    )  # images are not used here
    local.init(runner=local.SubprocessRunner(use_venv=False), pipeline_root=root)
    load(file)()


def load(file: Path) -> Any:
    """Return the pipeline that the file defines under its own name."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None  # noqa: S101 - it is a Python file
    assert spec.loader is not None  # noqa: S101 - as above
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, file.stem)


if __name__ == "__main__":
    main()
