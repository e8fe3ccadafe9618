"""The example PyTorchJobs of training-operator, from the Go module that the tests' operator is built from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from cluster import binaries
from cluster.fixtures import skip_because
from cluster.operators import OPERATOR_MODULE

if TYPE_CHECKING:
    from pathlib import Path


def skip_without_go() -> None:
    """Skip the calling module or test if Go is not available; if a cluster is required, fail instead."""
    skip_because(binaries.go_unmet())


def pytorchjobs() -> dict[Path, dict[str, Any]]:
    """Return every PyTorchJob of the examples by file, parsed by PyYAML."""
    folder = binaries.module_folder(binaries.TRAINING_OPERATOR, OPERATOR_MODULE)
    files = sorted(folder.glob("examples/pytorch*/**/*.yaml"))
    documents = [(file, list(yaml.safe_load_all(file.read_text()))) for file in files]
    return {file: found[0] for file, found in documents if [each["kind"] for each in found] == ["PyTorchJob"]}
