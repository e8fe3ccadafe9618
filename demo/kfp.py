"""`make demo-kfp`: Kubeflow Pipelines' own runner trains, evaluates and promotes a model on this machine.

The pipeline is `pipelines/digits.py`, the file that a cluster runs, too; its jobs are processes here, and its claim is
a directory. Everything is below `.demo/latest`, and the steps' outputs are shown at the end.
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
"""Beginning of the block of a step's inputs, which the runner prints completely; a closing brace ends the block."""


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
    """Run the pipeline, show its steps' output, and return the runner's exit code."""
    command = [sys.executable, "-m", "demo.kfp_runner", str(ROOT / "pipelines" / f"{name}.py"), str(artifacts(folder))]
    environment = os.environ | settings(folder)
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None  # noqa: S101 - stdout is a pipe
        for line in without_inputs(process.stdout):
            console.print(line, markup=False, soft_wrap=True)
        return process.wait()


def artifacts(folder: Folder) -> Path:
    """Return the runner's folder of the steps' artifacts."""
    return folder.path / "artifacts"


def settings(folder: Folder) -> dict[str, str]:
    """Return the environment variables that make the jobs run on this machine; the pipeline's file has no setting."""
    return {
        "PTJOB_BACKEND": "local",
        "PTJOB_LOCAL_ROOT": str(folder.jobs),
        "PTJOB_LOCAL_IMAGES": json.dumps({"ghcr.io/ptjob-provider/digits": str(ROOT / "docker" / "digits")}),
        "PYTHONUNBUFFERED": "1",
    }


def without_inputs(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines that are not part of a block of inputs."""
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
    """Yield a table of the outputs of each step that ran a job."""
    for file in sorted(artifacts(folder).glob("*/*/executor_output.json"), key=lambda path: path.stat().st_mtime):
        outputs = json.loads(file.read_text())
        if "job_name" in outputs.get("parameterValues", {}):
            yield _table(file.parent.name, outputs)


def parse_args() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m demo.kfp", description=__doc__)
    parser.add_argument("--pipeline", default="digits", help="of pipelines/ (default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=ROOT / ".demo", help="folder of the runs")
    return parser.parse_args()


def _table(name: str, outputs: dict[str, Any]) -> Table:
    values, artifacts = outputs["parameterValues"], outputs["artifacts"]
    table = Table(title=f"\n{name}", title_justify="left", box=None, show_header=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    table.add_row("job", values["job_name"])
    for tag, value in sorted(values["scalars"].items()):
        table.add_row(tag, f"{value:.4f}")
    for artifact in (*(["trained_model"] if values["model_uri"] else []), "curves", "report"):
        table.add_row(artifact, artifacts[artifact]["artifacts"][0]["uri"])
    return table


if __name__ == "__main__":
    sys.exit(main())
