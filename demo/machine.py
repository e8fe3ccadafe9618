"""Run the demonstration's jobs as processes of this machine, with directories in its folder as claims."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from demo.folder import ROOT, Folder
from ptjob_provider.core.local.backend import LocalBackend
from ptjob_provider.core.local.config import LocalConfig

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rich.table import Table

    from ptjob_provider.core.backend import Backend

IMAGE = "digits"


@dataclass(frozen=True, kw_only=True)
class Machine:
    """This machine; implements `Place`."""

    folder: Folder
    command: str = "make demo"
    title: str = "as processes of this machine"
    namespace: str = "default"

    @property
    def settings(self) -> Mapping[str, str]:
        """Return the settings of the local back-end, where the build context replaces the image."""
        images = {IMAGE: str(ROOT / "docker" / "digits")}
        return {
            "AIRFLOW__PTJOB__BACKEND": "local",
            "AIRFLOW__PTJOB__LOCAL_ROOT": str(self.folder.jobs),
            "AIRFLOW__PTJOB__LOCAL_IMAGES": json.dumps(images),
        }

    def backend(self) -> Backend:
        """Return the local back-end."""
        return LocalBackend(LocalConfig(root=self.folder.jobs))

    def prepare(self) -> None:
        """Create the jobs' folder; claims are created when a job mounts them."""
        self.folder.jobs.mkdir(parents=True, exist_ok=True)

    def model(self, model: Mapping[str, Any]) -> tuple[str, str]:
        """Return the model's file, and whether it matches the result's checksum."""
        path = self._path(model)
        return str(path), _checked(path, model["sha256"])

    def curves(self, tfevents: Mapping[str, Any]) -> str:
        """Return the curves' directory."""
        return str(self._path(tfevents))

    def tables(self) -> list[Table]:
        """Return no tables: the processes have ended."""
        return []

    def hints(self) -> list[tuple[str, str]]:
        """Return commands to view the curves and the jobs."""
        latest = Folder(path=self.folder.path.parent / "latest").shown
        return [
            ("curves", f".venv/bin/tensorboard --logdir {latest}/jobs/claims"),
            ("jobs", f".venv/bin/ptjob --root {latest}/jobs list"),
        ]

    def _path(self, output: Mapping[str, Any]) -> Path:
        """Return the path of an output `{claim, path}`; claims are below the root."""
        path: Path = self.folder.jobs / "claims" / self.namespace / output["claim"] / output["path"]
        return path


def _checked(path: Path, sha256: str) -> str:
    if not path.is_file():
        return "a directory" if path.is_dir() else "not there"
    return "as the file is" if hashlib.sha256(path.read_bytes()).hexdigest() == sha256 else "the file differs"
