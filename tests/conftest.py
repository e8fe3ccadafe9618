"""Fixtures and plugins for all folders of tests."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from demo.infrastructure import InfrastructureFailed
from installed import ROOT, Installed, install

if TYPE_CHECKING:
    from pathlib import Path

pytest_plugins = ["cluster.fixtures", "quarantine", "skipped_waits", "timings"]

settings.register_profile("on any machine", deadline=None)  # a busy machine may need any time
settings.load_profile("on any machine")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from this tree with the pinned build back-end."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, check=False)
    if done.returncode:
        raise InfrastructureFailed(f"the wheel was not built: exit code {done.returncode}")
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def installed_wheel(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Install the wheel as a user of Airflow does, in a new environment that does not refer to this tree."""
    return install(f"{wheel}[airflow,demo]", tmp_path_factory.mktemp("wheel") / "venv")
