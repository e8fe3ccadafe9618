"""training-operator's own example PyTorchJobs and its CRD, from its Go module; no file of it is in this tree."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from cluster.fixtures import skip_because

MODULE = Path(__file__).parent / "upstream_examples"
GO = shutil.which("go")


def skip_without_go() -> None:
    """Skip the module or test that calls this where there is no Go; where a cluster is required, that is an error."""
    skip_because("" if GO else "Go is not installed: training-operator's module is not read")


def folder() -> Path:
    """Return the folder of the module in Go's cache; Go downloads and verifies it once."""
    assert GO is not None
    command = [GO, "mod", "download", "-json", "github.com/kubeflow/training-operator"]
    done = subprocess.run(command, cwd=MODULE, check=False, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return Path(json.loads(done.stdout)["Dir"])


def pytorchjobs() -> dict[Path, dict[str, Any]]:
    """Return every PyTorchJob of the examples by its file, read by PyYAML's own loader."""
    files = sorted(folder().glob("examples/pytorch*/**/*.yaml"))
    documents = [(file, list(yaml.safe_load_all(file.read_text()))) for file in files]
    return {file: found[0] for file, found in documents if [each["kind"] for each in found] == ["PyTorchJob"]}
