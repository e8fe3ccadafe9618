"""Arena's command line, built once from its Go module when a test first asks for it, and the charts that come along."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.binaries import ARENA, module_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cluster.boot import Cluster


def ensure_built(cluster: Cluster, tell: Callable[[str], None]) -> Path:
    """Have the program, and return where it is.

    Raises:
        ClusterFailed: it cannot be built; with the end of what Go said.
    """
    cluster.programs.build(tell, [ARENA])
    return cluster.programs.folder(ARENA) / "arena"


def charts() -> Path:
    """Return the charts that it makes jobs from; it looks for them in `charts` of its user's home."""
    return module_folder(ARENA, "github.com/kubeflow/arena") / "charts"
