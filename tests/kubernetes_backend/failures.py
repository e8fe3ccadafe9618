"""All failures that are recorded, by the names of their files in `tests/data`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubernetes_backend.endings import ENDINGS
from kubernetes_backend.nodes import NODES
from kubernetes_backend.programs import PROGRAMS
from kubernetes_backend.starts import STARTS
from kubernetes_backend.trainjob_stories import TRAINJOBS

if TYPE_CHECKING:
    from kubernetes_backend.failure import Failure

FAILURES: dict[str, Failure] = {**PROGRAMS, **STARTS, **ENDINGS, **NODES, **TRAINJOBS}
