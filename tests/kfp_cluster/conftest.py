"""Fixtures for the whole session: the step's image in the cluster, and a namespace for pipelines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cluster.step_image import STEP
from kfp_cluster.lab import Lab, lab_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cluster.boot import Cluster


@pytest.fixture(scope="session")
def step_image(cluster: Cluster, tell: Callable[[str], None]) -> str:
    """Build the step's image and load it into the cluster."""
    return STEP.ensure(cluster, tell)


@pytest.fixture(scope="session")
def lab(cluster: Cluster, step_image: str) -> Iterator[Lab]:
    """Create a namespace for pipelines, which is deleted at the end."""
    with lab_in(cluster, step_image) as found:
        yield found
