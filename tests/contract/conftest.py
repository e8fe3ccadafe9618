"""The back-ends under the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from local_world import environment
from ptjob_provider.core.local import LocalBackend, LocalConfig
from worlds import World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture(params=["local"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """Return a back-end that has no jobs."""
    config = LocalConfig(root=tmp_path / "root", restart_backoff=0.2, environment=environment())
    made = World(backend=LocalBackend(config), image="example.org/train:1")
    yield made
    await made.clear()
