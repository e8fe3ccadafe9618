"""Tests of the step with real processes: jobs that succeed, fail, are deleted or are interrupted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kfp_adapter.conftest import CANARY
from ptjob_provider.kfp import step
from rows import each_row

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfp_adapter.conftest import LocalStep

TRAINS = """
import os, pathlib
if path := os.environ.get("PTJOB_MODEL_PATH"):
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(path).write_text("weights")
print("trained", os.environ["PTJOB_ATTEMPT"], flush=True)
"""
RAISES = "raise NotImplementedError('the images are black')"
HANGS = "import time; print('waiting', flush=True); time.sleep(300)"
MODEL = "pvc://models/m.pt"

MAIN = """
import json, sys
from types import SimpleNamespace
from ptjob_provider.kfp.step import run
given = json.loads(sys.argv[1])
run({**given, **{name: SimpleNamespace() for name in ("trained_model", "metrics", "curves", "report")}})
"""


def wait_for(condition: Callable[[], object]) -> None:
    """Return once the condition holds; the test's time limit ends an endless wait."""
    while not condition():
        time.sleep(0.05)


def started(local_step: LocalStep, program: str, **inputs: Any) -> subprocess.Popen[str]:
    """Start a step in a separate process."""
    plain = {
        name: value for name, value in local_step.given(program, **inputs).items() if name not in local_step.artifacts
    }
    command = [sys.executable, "-c", MAIN, json.dumps(plain)]
    return subprocess.Popen(
        command, env=local_step.environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def read_until(process: subprocess.Popen[str], text: str) -> str:
    said = ""
    assert process.stdout is not None
    for line in process.stdout:
        said += line
        if text in line:
            return said
    raise AssertionError(said)


def test_a_job_that_succeeds_is_handed_on_by_reference(
    local_step: LocalStep, capsys: pytest.CaptureFixture[str]
) -> None:
    """The artifact has the model's address, rank 0's line is in the log, and the string outputs name the same model."""
    outputs = local_step.run(TRAINS, model=MODEL)

    said = capsys.readouterr().out.splitlines()
    model = local_step.artifacts["trained_model"]
    assert "trained 1" in said
    assert said[-1] == f"── default/{outputs.job_name} succeeded"
    assert (outputs.model_uri, outputs.model_claim, outputs.model_path) == (MODEL, "models", "m.pt")
    assert (model.metadata["uri"], model.metadata["bytes"]) == (MODEL, 7)
    assert outputs.result["phase"] == "Succeeded"
    assert None not in outputs.result.values()
    assert json.loads(json.dumps(outputs)) == [*outputs]


def test_the_curves_of_a_training_without_events_are_those_of_its_log(local_step: LocalStep) -> None:
    """The name of a metric is masked as the lines are."""
    program = (
        "import json, os\nfor n in range(3): print(json.dumps({'step': n, 'loss': 2 - n / 2, os.environ['T']: n}))"
    )
    local_step.run(program, env={"T": {"secret": "hub", "key": "token"}})

    page = Path(local_step.artifacts["curves"].path).read_text()
    assert [each.partition("</h2>")[0] for each in page.split("<h2>")[1:]] == ["loss", "***"]
    assert "last 1 at step 2; lowest 1 at 2, highest 2 at 0" in page


def test_a_pattern_reads_lines_of_a_programs_own(local_step: LocalStep) -> None:
    pattern = r"update (?P<step>\d+), L (?P<loss>[\d.]+)"

    local_step.run("for n in range(3): print(f'update {n}, L {2 - n / 2}')", progress=pattern)

    assert "last 1 at step 2" in Path(local_step.artifacts["curves"].path).read_text()


RETURNS = """
import pathlib
message = '{"ptjob_return_value": {"seed": 9007199254740993, "nan": NaN, "whole": 9007199254740991}}'
pathlib.Path("/dev/termination-log").write_text(message)
"""


def test_values_that_kubeflow_pipelines_would_change_are_texts(
    local_step: LocalStep, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its protobuf has only floats, and no JSON has NaN; the notice names the keys."""
    outputs = local_step.run(RETURNS)

    said = capsys.readouterr().out
    assert outputs.result["return_value"] == {"seed": "9007199254740993", "nan": "NaN", "whole": 2**53 - 1}
    assert "return_value.nan (no finite number)" in said
    assert "return_value.seed (an integer beyond 2^53)" in said


def test_a_job_that_fails_fails_the_step_and_the_diagnosis_comes_first(
    local_step: LocalStep, capsys: pytest.CaptureFixture[str]
) -> None:
    """The diagnosis comes before the last log lines; the exit code says that a retry would not help."""
    with pytest.raises(SystemExit) as ended:
        local_step.run(RAISES)

    _, _, why = capsys.readouterr().out.partition(" failed: ")
    assert ended.value.code == step.EXIT_FAILED
    assert why.startswith("master-0 (rank 0) exited with code 1: NotImplementedError: the images are black.")
    assert "NotImplementedError: the images are black" in why.rpartition("Last lines of")[2]


@each_row(
    ("inputs", "said"),
    [
        ({"workers": "none"}, "workers: 'none'"),
        ({"pipeline_run_id": "{{$.pipeline_job_uuid}}"}, "dsl.PIPELINE_JOB_ID_PLACEHOLDER"),
        ({"args": ["--run={{$.pipeline_job_name}}"]}, "args[0]: '--run={{$.pipeline_job_name}}'"),
        ({"labels": {"{{$.workspace_path}}": "x"}}, "labels: '{{$.workspace_path}}'"),
        ({"timeout": "0"}, "timeout: '0'"),
        ({"env": {"A": "b"}, "env_objects": []}, "env_objects"),
        ({"kind": "TrainJob"}, "TrainJob' is not allowed; this machine runs"),
        ({"gpus": "1"}, "requests 1 devices in all, this machine offers 0"),
    ],
)
def test_a_wrong_request_starts_nothing(
    local_step: LocalStep, capsys: pytest.CaptureFixture[str], inputs: dict[str, Any], said: str
) -> None:
    """The message names the input; the back-end may refuse it, too."""
    with pytest.raises(SystemExit) as ended:
        local_step.run(TRAINS, **inputs)

    assert ended.value.code == step.EXIT_USAGE
    assert said in capsys.readouterr().out
    wait_for(lambda: local_step.jobs() == [])


def test_a_job_that_takes_too_long_is_stopped(local_step: LocalStep, capsys: pytest.CaptureFixture[str]) -> None:
    """This is the step's own timeout; a retry may help."""
    with pytest.raises(SystemExit) as ended:
        local_step.run(HANGS, timeout="1.5")

    assert ended.value.code == step.EXIT_TRY_AGAIN
    assert "timed out" in capsys.readouterr().out
    wait_for(lambda: local_step.jobs() == [])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_step_that_is_stopped_deletes_its_job(local_step: LocalStep, number: signal.Signals) -> None:
    """When the step has ended, nothing of the job runs, and the step has not succeeded."""
    process = started(local_step, HANGS)
    read_until(process, "waiting")

    process.send_signal(number)
    said, _ = process.communicate()

    assert process.returncode == step.EXIT_STOPPED, said
    assert "was deleted" in said
    wait_for(lambda: local_step.jobs() == [])


def test_a_step_whose_output_nobody_reads_any_more_deletes_its_job(local_step: LocalStep) -> None:
    """The launcher is gone, and so is the run."""
    process = started(local_step, "import time\nwhile True:\n    print('waiting', flush=True)\n    time.sleep(0.1)")
    read_until(process, "waiting")

    assert process.stdout is not None
    process.stdout.close()

    assert process.wait() != 0
    wait_for(lambda: local_step.jobs() == [])


def test_steps_of_other_runs_tasks_and_iterations_have_jobs_of_their_own(local_step: LocalStep) -> None:
    others = [{}, {"pipeline_run_id": "run-2"}, {"pipeline_task_name": "train-2"}, {"pipeline_task_id": "8"}]

    names = {local_step.run(TRAINS, **ids).job_name for ids in others}

    assert len(names) == len(others)


@pytest.mark.parametrize("program", [TRAINS, RAISES])
def test_a_secret_is_nowhere_in_log_and_outputs(
    local_step: LocalStep, capsys: pytest.CaptureFixture[str], program: str
) -> None:
    tells = f"import os; print('token', os.environ['TOKEN'], flush=True)\n{program}"
    env = {"TOKEN": {"secret": "hub", "key": "token"}}

    outputs: object = None
    try:
        outputs = local_step.run(tells.replace("are black", "are ' + os.environ['TOKEN'] + '"), env=env, model=MODEL)
    except SystemExit:
        assert program is RAISES

    said = capsys.readouterr().out
    files = [file.read_text() for file in (local_step.folder / "artifacts").rglob("*") if file.is_file()]
    assert "token ***" in said
    assert CANARY not in said + json.dumps(outputs) + "".join(files) + json.dumps(local_step.jobs())
