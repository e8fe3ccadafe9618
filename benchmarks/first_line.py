"""Measure how long it takes from a saved edit to the first line of the training: `python -m benchmarks.first_line`.

On this machine, four ways are compared: the program alone, a function with `train`, a folder with `ptjob run --code .`,
and the same function with Kubeflow's SDK and its local process back-end. For each edit, each way starts new processes,
one way after the other. Then the import of the tutorial's DAG is compared with that of the same DAG with `@task`.

With `--cluster`, only this is compared, on the test cluster: a PyTorchJob with `code=`, and the same job with the
program in its image, in turn. No limit is checked.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import meter
from benchmarks.overhead import Nowhere
from benchmarks.report import table
from cluster import training_image
from cluster.boot import Cluster
from cluster.layout import Layout
from cluster.shell import Progress
from cluster.tenants import namespace_in, service_account
from cluster_world import config_of
from installed import ROOT
from ptjob_provider.core.code.folder import with_packed_folder
from ptjob_provider.core.identity import Owner
from ptjob_provider.core.kubernetes import KubernetesBackend
from ptjob_provider.core.run.follow import follow
from ptjob_provider.core.run.submit import ensure_submitted
from ptjob_provider.core.spec import TrainingJob
from rbac import rules_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.logs import LogLine

BARE, FUNCTION, FOLDER = "python train.py", "ptjob_provider.train", "ptjob run --code ."
KUBEFLOW = "kubeflow SDK, local process"
IN_IMAGE, WITH_CODE = "code in the image", "code="
PROGRAM = "print('edit {edit}', flush=True)\n"
MAIN = 'if __name__ == "__main__":\n    '
SCRIPT = f"{{head}}\n\n\ndef fit() -> None:\n    {PROGRAM}\n\n{MAIN}{{call}}\n"
SCRIPTS = {
    BARE: SCRIPT.format(head="import os", call="fit()", edit="{edit}"),
    FUNCTION: SCRIPT.format(head="from ptjob_provider import train", call='train(fit, backend="local")', edit="{edit}"),
    FOLDER: PROGRAM,
    KUBEFLOW: SCRIPT.format(head="import kubeflow_local", call="kubeflow_local.train(fit)", edit="{edit}"),
}
TUTORIAL = ROOT / "docs" / "tutorials" / "from-a-function.md"
PARSED = """
import time
import airflow.sdk
began = time.perf_counter()
import {module}
print(time.perf_counter() - began)
"""


def main() -> None:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_line", description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--cluster", action="store_true", help="on the Kubernetes under test, instead")
    arguments = parser.parse_args()
    sys.stdout.write(
        f"Measured {datetime.now(UTC):%Y-%m-%d}: {meter.machine()}, {meter.versions()}, medians of"
        f" {arguments.runs}.\n\n"
    )
    if arguments.cluster:
        cluster = Cluster.of(Layout.of(os.environ))
        with cluster.borrowed(Progress()), namespace_in(cluster) as namespace:
            sys.stdout.write(shown(asyncio.run(on_the_cluster(cluster, namespace, arguments.runs)), baseline=IN_IMAGE))
        return
    with tempfile.TemporaryDirectory(prefix="ptjob-first-line-") as scratch:
        sys.stdout.write(shown(on_this_machine(Path(scratch), arguments.runs), baseline=BARE) + "\n")
        sys.stdout.write(shown(parsing(Path(scratch), arguments.runs), baseline="@task", what="importing a DAG file"))


def shown(
    seconds: Mapping[str, Sequence[float]], *, baseline: str, what: str = "from an edit to the first line"
) -> str:
    """Return a table of medians, with their difference from the baseline's and their ratio to it."""
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    least = medians[baseline]
    rows = [
        [name, f"{each:.3f}", f"{max(seconds[name]):.3f}", f"{each - least:+.3f}", f"{each / least:.2f}"]
        for name, each in medians.items()
    ]
    return table([what, "seconds", "longest", f"more than {baseline}", "times"], rows) + "\n"


# --- this machine


def on_this_machine(scratch: Path, runs: int) -> dict[str, list[float]]:
    """Return the seconds of each way, without its first run, which fills caches."""
    ptjob = str(Path(sys.executable).with_name("ptjob"))
    run = [ptjob, "--backend", "local", "run", "--image", "none", "--code", ".", "--name", "edit-{edit}"]
    commands = {
        BARE: [sys.executable, "train.py"],
        FUNCTION: [sys.executable, "train.py"],
        FOLDER: [*run, "--", "python", "train.py"],
        KUBEFLOW: [str(ROOT / ".venv-bench" / "bin" / "python"), "train.py"],
    }
    environ = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(scratch),
        "PTJOB_LOCAL_ROOT": str(scratch / "jobs"),
        "PYTHONPATH": str(ROOT / "benchmarks" / "contenders"),
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for edit in range(runs + 1):
        for name, command in commands.items():
            project = scratch / name.replace(" ", "-")
            project.mkdir(exist_ok=True)
            line, words = f"edit {edit}", [word.format(edit=edit) for word in command]
            seconds[name].append(first_line(words, project, SCRIPTS[name].format(edit=edit), line, environ))
    return {name: values[1:] for name, values in seconds.items()}


def first_line(command: list[str], folder: Path, text: str, line: str, environ: dict[str, str]) -> float:
    """Save the program, run the command, and return the seconds until it prints the line."""
    began = time.perf_counter()
    (folder / "train.py").write_text(text)
    with subprocess.Popen(
        command, cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        printed = []
        for each in process.stdout:
            printed.append(each)
            if each.strip() == line:
                seconds = time.perf_counter() - began
                process.stdout.read()
                return seconds
    raise SystemExit(f"{command} did not print {line!r}:\n{''.join(printed)}")


def parsing(scratch: Path, runs: int) -> dict[str, list[float]]:
    """Return the seconds that the import of the tutorial's DAG takes, and of the same one with `@task`."""
    text = TUTORIAL.read_text()
    (dag,) = re.findall(r'```python title="nightly_fit.py"\n(.*?)^```', text, re.DOTALL | re.MULTILINE)
    plain = re.sub(r"@task\.pytorch_job\(.*?\n    \)\n", "@task\n", dag, flags=re.DOTALL)
    (scratch / "nightly_fit.py").write_text(dag)
    (scratch / "plain.py").write_text(plain)
    environ = {**os.environ, "AIRFLOW_HOME": str(scratch / "airflow"), "PYTHONPATH": str(scratch)}
    seconds: dict[str, list[float]] = {"@task": [], "@task.pytorch_job": []}
    for _ in range(runs + 1):
        for name, module in zip(seconds, ("plain", "nightly_fit"), strict=True):
            command = [sys.executable, "-c", PARSED.format(module=module)]
            process = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
            seconds[name].append(float(process.stdout.splitlines()[-1]))
    return {name: values[1:] for name, values in seconds.items()}


# --- a cluster


class _FirstLine(Nowhere):
    """Sink that only records when the first line arrived."""

    def __init__(self) -> None:
        self.at = 0.0

    def line(self, _: LogLine) -> None:
        """Record the time of the first line."""
        self.at = self.at or time.perf_counter()


async def on_the_cluster(cluster: Cluster, namespace: str, runs: int) -> dict[str, list[float]]:
    """Return the seconds from an edit to the first line, with `code=` and with the program in the image.

    No image is built for the latter: the job's command contains the program, which takes no time.
    """
    image = training_image.DIGITS.ensure(cluster, Progress())
    backend = KubernetesBackend(config_of(service_account(cluster, namespace, rules_of("code"))))
    seconds: dict[str, list[float]] = {IN_IMAGE: [], WITH_CODE: []}
    with tempfile.TemporaryDirectory(prefix="ptjob-first-line-") as scratch:
        for edit in range(runs + 1):
            for name, values in seconds.items():
                fields = {"namespace": namespace, "image": image}
                values.append(await _seconds_to_first_line(backend, f"{name} {edit}", fields, Path(scratch)))
    return {name: values[1:] for name, values in seconds.items()}


async def _seconds_to_first_line(backend: Backend, edit: str, fields: Mapping[str, Any], folder: Path) -> float:
    program, sink = PROGRAM.format(edit=edit), _FirstLine()
    given: dict[str, Any] = {"command": ["python3", "-c", program]}
    began = time.perf_counter()
    if edit.startswith(WITH_CODE):
        (folder / "train.py").write_text(program)
        given = {"command": ["python3", "train.py"], "code": str(folder)}
    job = TrainingJob.parse(name="edit", memory="256Mi", cpu="0.5", **fields, **given)
    packed = with_packed_folder(job, beside=folder)
    owner = Owner(instance="bench", ids={"edit": edit}, labels={})
    submission = await ensure_submitted(backend, packed, owner=owner, store=Nowhere())
    await follow(backend, submission, sink=sink)
    await backend.delete(submission.ref)
    return sink.at - began


if __name__ == "__main__":
    main()
