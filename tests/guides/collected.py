"""A plug-in for pytest that writes down what was collected, and where each test runs; it runs none."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_collection_finish(session: pytest.Session) -> None:
    """Write each test's file, name, whether it needs the cluster, and what it is given."""
    found = [
        {
            "test": f"{item.nodeid.split('[')[0]}",
            "cluster": item.get_closest_marker("cluster") is not None,
            "fixtures": sorted(getattr(item, "fixturenames", ())),
        }
        for item in session.items
    ]
    Path(os.environ["COLLECTED"]).write_text(json.dumps(found))
