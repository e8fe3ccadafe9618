"""Test of claims on one machine, which are directories without annotations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ptjob_provider.core.errors import UnsupportedByBackend
from ptjob_provider.core.local.backend import LocalBackend
from ptjob_provider.core.local.config import LocalConfig

if TYPE_CHECKING:
    from pathlib import Path


def test_a_claim_without_annotations_is_refused_with_what_watches_it(tmp_path: Path) -> None:
    backend = LocalBackend(LocalConfig(root=tmp_path))

    with pytest.raises(UnsupportedByBackend, match=rf"use DataArrivalTrigger\('{tmp_path}/claims/team/data'\)"):
        backend.watch_claim("team", "data")
