"""The built wheel in a new environment: what a user has after `pip install`."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from demo.infrastructure import InfrastructureFailed

ROOT = Path(__file__).resolve().parent.parent


def unbuilt_page() -> str:
    """Return why this tree, and so a wheel of it, has no Training page; "" if it has one."""
    page = ROOT / "ptjob_provider" / "airflow" / "training_page" / "built" / "page.js"
    return "" if page.is_file() else "the Training page is not built: `make page`, which needs npm"


@dataclass(frozen=True, kw_only=True)
class Installed:
    """A virtual environment with the wheel; nothing in it refers to this tree."""

    folder: Path

    @property
    def python(self) -> Path:
        """The Python interpreter of the environment."""
        return self.folder / "bin" / "python"

    def run(
        self, *command: str, cwd: Path | None = None, env: dict[str, str] | None = None, timeout: float = 300
    ) -> str:
        """Run a program of the environment (`python`, `ptjob`, `airflow`) outside the tree and return its output.

        A failure raises an error with all output.
        """
        argv = [str(self.folder / "bin" / command[0]), *command[1:]]
        done = subprocess.run(
            argv,
            cwd=cwd or self.folder,
            env=self.environment(env or {}),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == 0, f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def environment(self, more: dict[str, str]) -> dict[str, str]:
        """Return the environment of a shell that has activated it, without our settings."""
        hidden = ("AIRFLOW", "PTJOB_", "PYTHON", "COV")
        outside = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        path = f"{self.folder / 'bin'}{os.pathsep}{outside.get('PATH', os.defpath)}"
        return {**outside, "PATH": path, "AIRFLOW_HOME": str(self.folder / "airflow"), **more}


def install(requirement: str, folder: Path, *, constraints: str = "airflow") -> Installed:
    """Install the wheel and the versions in `constraints/` in a new environment: two seconds from uv's cache."""
    command = [str(ROOT / "scripts" / "environment.sh"), "wheel", constraints, str(folder), requirement]
    done = subprocess.run(command, env={**os.environ, "PYTHON": sys.executable}, check=False)
    if done.returncode:
        raise InfrastructureFailed(f"{requirement} was not installed: exit code {done.returncode}")
    return Installed(folder=folder)
