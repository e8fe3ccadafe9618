"""Arena's command line, built once from its Go module when a test first asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.binaries import ARENA
from cluster.shell import locked

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cluster.boot import Cluster


def ensure_built(cluster: Cluster, tell: Callable[[str], None]) -> Path:
    """Have the program, and return where it is.

    Raises:
        ClusterFailed: it cannot be built; with the end of what Go said.
    """
    with locked(cluster.layout.cache / "arena.lock"):
        cluster.programs.build(tell, [ARENA])
    return cluster.programs.folder(ARENA) / "arena"
