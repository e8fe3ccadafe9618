"""`make demo-kfp`: Kubeflow Pipelines' own runner trains, evaluates and promotes a model on this machine.

The pipeline is the file that a cluster runs, `pipelines/digits.py`; its jobs are processes here, its claim a directory.
Everything is kept below `.demo/latest`, and what the steps have made is shown at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from demo.folder import ROOT, Folder, make_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_INPUT = "Got executor_input:"
"""The runner prints every input of a step behind it, ours and the many that nobody gave, up to a closing brace."""


def main() -> int:
    """Run the demonstration and return the exit code: 0 if every step succeeded."""
    args = parse_args()
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    folder = make_folder(args.folder)
    console.print(
        f"[bold]Pipeline[/] pipelines/{args.pipeline}.py, jobs as processes of this machine, in {folder.shown}"
    )
    code = run(args.pipeline, folder, console)
    for task in tasks(folder):
        console.print(task)
    champion = folder.jobs / "claims" / "default" / "digits" / "champion" / "model.pt"
    if champion.is_file():
        console.print(f"\nthe champion: {champion}")
    return code


def run(name: str, folder: Folder, console: Console) -> int:
    """Run the pipeline, show what its steps say, and return the runner's exit code."""
    command = [sys.executable, "-m", "demo.kfp_runner", str(ROOT / "pipelines" / f"{name}.py"), str(artifacts(folder))]
    environment = os.environ | settings(folder)
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None  # noqa: S101 - it was asked for
        for line in without_inputs(process.stdout):
            console.print(line, markup=False, soft_wrap=True)
        return process.wait()


def artifacts(folder: Folder) -> Path:
    """Return where the runner puts the steps' artifacts."""
    return folder.path / "artifacts"


def settings(folder: Folder) -> dict[str, str]:
    """Return what makes this machine the place of the jobs; nothing in a pipeline's file says so."""
    return {
        "PTJOB_BACKEND": "local",
        "PTJOB_LOCAL_ROOT": str(folder.jobs),
        "PTJOB_LOCAL_IMAGES": json.dumps({"ghcr.io/ptjob-provider/digits": str(ROOT / "docker" / "digits")}),
        "PYTHONUNBUFFERED": "1",
    }


def without_inputs(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines without the blocks of inputs."""
    end = ""
    for line in lines:
        text = line.rstrip()
        if _INPUT in text:
            end = text[: len(text) - len(text.lstrip())] + "}"
        if not end and text:
            yield text
        if text == end:
            end = ""


def tasks(folder: Folder) -> Iterator[Table]:
    """Yield what each job's step has made, as a table."""
    for file in sorted(artifacts(folder).glob("*/*/executor_output.json"), key=lambda path: path.stat().st_mtime):
        made = json.loads(file.read_text())
        if "job_name" in made.get("parameterValues", {}):
            yield _table(file.parent.name, made)


def parse_args() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m demo.kfp", description=__doc__)
    parser.add_argument("--pipeline", default="digits", help="of pipelines/ (default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=ROOT / ".demo", help="where runs keep their things")
    return parser.parse_args()


def _table(name: str, made: dict[str, Any]) -> Table:
    values, handed_on = made["parameterValues"], made["artifacts"]
    table = Table(title=f"\n{name}", title_justify="left", box=None, show_header=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    table.add_row("job", values["job_name"])
    for tag, value in sorted(values["scalars"].items()):
        table.add_row(tag, f"{value:.4f}")
    for artifact in (*(["trained_model"] if values["model_uri"] else []), "curves", "report"):
        table.add_row(artifact, handed_on[artifact]["artifacts"][0]["uri"])
    return table


if __name__ == "__main__":
    sys.exit(main())
