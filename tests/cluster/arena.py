"""Arena's command line, built from its Go module when a test first needs it, and the charts of that module."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.binaries import ARENA, module_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cluster.boot import Cluster


def ensure_built(cluster: Cluster, tell: Callable[[str], None]) -> Path:
    """Build the program if it is missing, and return its path.

    Raises:
        ClusterFailed: the build failed; the message has the end of Go's output.
    """
    cluster.programs.build(tell, [ARENA])
    return cluster.programs.folder(ARENA) / "arena"


def charts() -> Path:
    """Return the folder of the charts that Arena makes jobs from; it reads them from `charts` in the user's home."""
    return module_folder(ARENA, "github.com/kubeflow/arena") / "charts"
