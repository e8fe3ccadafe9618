"""Folders of demonstrations: one per run under `.demo/`, of which the newest three are kept."""

from __future__ import annotations

import contextlib
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from demo.stack import pid_file, stop_leftovers

ROOT = Path(__file__).resolve().parent.parent
KEEP = 3


@dataclass(frozen=True, kw_only=True)
class Folder:
    """One run's folder, always new: the schedule creates a run, and there is no job to adopt."""

    path: Path

    @property
    def shown(self) -> str:
        """The folder's path to show."""
        return str(self.path.relative_to(Path.cwd()) if self.path.is_relative_to(Path.cwd()) else self.path)

    @property
    def home(self) -> Path:
        """AIRFLOW_HOME."""
        return self.path / "airflow"

    @property
    def jobs(self) -> Path:
        """`[ptjob] local_root`: the jobs' states and logs."""
        return self.path / "jobs"


def make_folder(base: Path) -> Folder:
    """Create a new run's folder, point `latest` to it and remove old ones that are not in use."""
    path = base.absolute() / time.strftime("%Y%m%d-%H%M%S")
    path.mkdir(parents=True)
    latest = base / "latest"
    latest.unlink(missing_ok=True)
    latest.symlink_to(path.name)
    runs = sorted(found for found in base.iterdir() if found.is_dir() and not found.is_symlink())
    for old in runs[:-1]:
        stop_leftovers(Folder(path=old).home)
    for old in runs[:-KEEP]:
        if not pid_file(Folder(path=old).home).exists():
            _remove(old)
    return Folder(path=path)


def _remove(folder: Path) -> None:
    with contextlib.suppress(OSError):
        shutil.rmtree(folder)
