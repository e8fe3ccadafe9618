"""DAGs that `test_decorators.py` runs with `dag.test()` in a separate process."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, task

SEEN = Path(os.environ["SEEN"])
FACTOR = 2


@dataclass
class Config:
    rate: float
    sizes: tuple[int, ...] = (1,)


def scaled(value: float) -> float:
    return FACTOR * value


@task
def settings() -> dict[str, Any]:
    return {"rate": 0.25, "sizes": [1, 2]}


@task
def keep(name: str, value: Any, job: Any) -> None:
    """Write the value that a downstream task receives to a file."""
    digest = (job["code_revision"] or {}).get("digest")
    SEEN.joinpath(f"{name}.json").write_text(json.dumps([value, job["phase"], job["return_value"], digest]))


with DAG("plain", schedule=None) as plain:

    @task.pytorch_job(image="digits", workers=2, deferrable=False)
    def train(config: Config, words: list[str], run: str = "") -> dict[str, Any]:
        """Return the arguments that rank 0 received."""
        assert os.environ["WORLD_SIZE"] == "2"
        return {"rate": scaled(config.rate), "sizes": config.sizes, "words": words, "run": run, "file": __name__}

    done = train(settings(), ["größer"], run="{{ run_id[:6] }}")
    keep("plain", done, done["job"])


with DAG("beside", schedule=None) as beside:

    @task.pytorch_job(image="digits", code="project", nproc_per_node=1, deferrable=True)
    def measure() -> list[Any]:
        """Import a module from the folder next to this file, which is the working directory in the pod."""
        import net  # noqa: PLC0415 - it exists only in the pod

        return [net.SIZE, sorted(path.name for path in Path().glob("*.py"))]

    measured = measure()
    keep("beside", measured, measured["job"])

if __name__ == "__main__":
    states = [each.test().state for each in (plain, beside)]
    print(states)  # noqa: T201 - shown when the test fails
    sys.exit(states != ["success"] * 2)
