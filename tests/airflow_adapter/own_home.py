"""Run DAG files with `dag.test()` in a separate process with an empty Airflow home."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from installed import ROOT

HERE = Path(__file__).parent
DATABASE = "airflow.db"
"""Airflow's default SQLite file, relative to its home."""

WITH_TORCH = sys.executable if find_spec("torch") else str(ROOT / ".venv" / "bin" / "python")
"""A Python with PyTorch and TensorBoard for jobs that need them; the environments of `make test-versions` lack both."""


@dataclass(frozen=True)
class Home:
    """An empty Airflow home with a database; DAGs write their results to `seen`."""

    root: Path
    env: dict[str, str]
    python: Path

    @property
    def seen(self) -> Path:
        return self.root / "seen"

    def run(self, script: str, *arguments: str) -> str:
        """Run a script of this folder as the home's DAG file and return its output.

        Raises:
            AssertionError: the script failed; the message contains the end of its output.
        """
        dags = shutil.copy(HERE / script, self.root / "dags")
        done = subprocess.run(
            [self.python, dags, *arguments],
            cwd=self.root,
            env=self.env,
            text=True,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert done.returncode == 0, done.stdout[-8000:]
        return done.stdout


def make_home(root: Path, *, python: Path = Path(sys.executable), **more: str) -> Home:
    """Create a home with a migrated database that runs jobs as processes of this machine.

    Args:
        root: the home; must not exist yet.
        python: the interpreter that has Airflow.
        more: further environment variables.
    """
    for folder in ("dags", "seen"):
        (root / folder).mkdir(parents=True)
    outside = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    env = outside | {
        "AIRFLOW_HOME": str(root),
        "AIRFLOW__CORE__DAGS_FOLDER": str(root / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__PTJOB__BACKEND": "local",
        "AIRFLOW__PTJOB__LOCAL_ROOT": str(root / "jobs"),
        "PYTHONUNBUFFERED": "1",
        "SEEN": str(root / "seen"),
        **more,
    }
    shutil.copyfile(_migrated(), root / DATABASE)
    return Home(root, env, python)


@cache
def _migrated() -> Path:
    """Return a database that is migrated once and copied to each home of this process."""
    root = Path(tempfile.mkdtemp(prefix="airflow-migrated-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    env = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    command = [Path(sys.executable).with_name("airflow"), "db", "migrate"]
    subprocess.run(command, cwd=root, env=env | {"AIRFLOW_HOME": str(root)}, check=True, capture_output=True)
    return root / DATABASE
