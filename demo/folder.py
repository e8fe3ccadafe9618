"""Create a folder for each run of a demonstration under `.demo/`, and keep the newest three."""

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
    """Folder of one run. It is always new, so that the schedule creates a run and there is no job to adopt."""

    path: Path

    @property
    def shown(self) -> str:
        """Return the folder's path for people, relative to the working directory if possible."""
        return str(self.path.relative_to(Path.cwd()) if self.path.is_relative_to(Path.cwd()) else self.path)

    @property
    def home(self) -> Path:
        """Return the run's AIRFLOW_HOME."""
        return self.path / "airflow"

    @property
    def jobs(self) -> Path:
        """Return the value of `[ptjob] local_root`, with the jobs' states and logs."""
        return self.path / "jobs"


def make_folder(base: Path) -> Folder:
    """Create the folder of a new run, link `latest` to it and remove old folders that are not in use."""
    path = base.absolute() / time.strftime("%Y%m%d-%H%M%S")
    path.mkdir(parents=True)
    latest = base / "latest"
    latest.unlink(missing_ok=True)
    latest.symlink_to(path.name)
    runs = sorted(entry for entry in base.iterdir() if entry.is_dir() and not entry.is_symlink())
    for old in runs[:-1]:
        stop_leftovers(Folder(path=old).home)
    for old in runs[:-KEEP]:
        if not pid_file(Folder(path=old).home).exists():
            _remove(old)
    return Folder(path=path)


def _remove(folder: Path) -> None:
    with contextlib.suppress(OSError):
        shutil.rmtree(folder)
