"""Tests of `train` on real jobs of this machine: results, logs, diagnoses, handles, and a running event loop."""
# ruff: noqa: T201 - functions that run as trainings print

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from cluster.shell import until
from ptjob_provider import train
from ptjob_provider.core.errors import InvalidSpec, JobDeleted, JobFailed
from rows import each_row

if TYPE_CHECKING:
    from pathlib import Path

    from machine import Machine

LOADED = """
import sys
before = set(sys.modules)
import ptjob_provider
print(sorted(set(sys.modules) - before))
ptjob_provider.train
print([name for name in ("airflow", "kfp", "kubernetes", "kubernetes_asyncio", "torch") if name in sys.modules])
"""
INTERRUPTED = """
import os, signal, time
from ptjob_provider import train
def fit():
    print("begun", flush=True)
    time.sleep(600)
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored if a shell runs these tests in the background
train(fit, delete_on_interrupt=True)
"""


@dataclass(frozen=True)
class Config:
    rate: float
    sizes: tuple[int, ...] = ()


@pytest.fixture(autouse=True)
def on_this_machine(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run jobs in the root of the test's machine."""
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "airflow"))
    monkeypatch.setenv("PTJOB_LOCAL_ROOT", str(machine.root))


def fit(config: Config, *, scale: int = 1) -> dict[str, Any]:
    with open(os.environ["PTJOB_MODEL_PATH"], "w") as model:  # noqa: PTH123 - short
        model.write("m")
    print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"])
    return {"rate": config.rate * scale, "sizes": config.sizes}


def fails(at: int) -> float:
    print("so far")
    return 1 / (at - at)


def hangs(rate: float = 1.0) -> None:
    import time  # noqa: PLC0415 - travels with the function

    print("begun", flush=True)
    time.sleep(600)


def test_a_result_has_the_return_value(capsys: pytest.CaptureFixture[str]) -> None:
    """Rank 0's lines are printed, and outputs are verified as for a task; no message is about an image."""
    result = train(
        fit,
        Config(0.5, (1, 2)),
        kwargs={"scale": 4},
        workers=2,
        backend="local",
        model="pvc://models/m.pt",
        timeout=800,
    )

    assert result["return_value"] == {"rate": 2.0, "sizes": [1, 2]}
    assert (result["phase"], result["model"]["bytes"]) == ("Succeeded", 1)
    shown = capsys.readouterr()
    assert shown.out == "rank 0 of 2\n"
    assert "succeeded" in shown.err
    assert not re.search("image|does not apply", shown.err)


CFG = dict(lr=0.001, epochs=1)  # noqa: C408 - no literal


def overrides(config: dict[str, Any]) -> None:
    config.update(lr=0.1)


def seed_everything(seed: int) -> None: ...


overrides(CFG)
seed_everything(42)
if os.sep:
    CFG["epochs"] = 100


def sees() -> dict[str, Any]:
    return CFG


def test_a_function_trains_with_the_values_of_the_call(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changed by a call, in an `if`, and just before the training; a notice names what the job does not run."""
    monkeypatch.setitem(CFG, "seen", (float("inf"), None))

    result = train(sees)

    assert result["return_value"] == {"lr": 0.1, "epochs": 100, "seen": ["Infinity", None]}
    assert re.search(
        r"function sees: seed_everything\(42\) \(line \d+\) is not run in the job", capsys.readouterr().err
    )


def trains_only() -> None:
    print("trained")


def test_a_function_that_returns_nothing_has_returned_none() -> None:
    """As in Python: the key exists."""
    assert train(trains_only)["return_value"] is None


def test_a_function_imports_from_the_folder_that_travels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the folder of the script or the notebook, and the function's working directory."""
    (tmp_path / "net.py").write_text("SIZE = 3\n")
    monkeypatch.chdir(tmp_path)

    def sized() -> int:
        import net  # noqa: PLC0415 - it is only in the pod

        found: int = net.SIZE
        return found

    result = train(sized, code=".")

    assert (result["return_value"], len(result["code_revision"]["digest"])) == (3, 71)


def test_the_diagnosis_is_raised() -> None:
    """The error has the exception and advice; the traceback has none of this package's inner functions."""
    with pytest.raises(
        JobFailed, match=r"1: fails \(cli/test_train.py, line \d+\): ZeroDivisionError: .* Look at the exception"
    ) as raised:
        train(fails, 3)

    assert raised.value.__cause__ is None
    assert [each.name for each in raised.traceback] == [
        "test_the_diagnosis_is_raised",
        "train",
        "_run",
    ]


async def test_a_notebook_has_a_running_event_loop() -> None:
    """So requests need a loop of their own; two jobs of one function are two jobs, with the function's name."""
    first, second = (train(fit, Config(1.0), model="pvc://models/m.pt", submit=True) for _ in range(2))

    assert first.wait()["return_value"] == {"rate": 1.0, "sizes": []}
    assert first.status()["phase"] == "Succeeded"
    assert first.logs() == "rank 0 of 1\n"
    assert first.ref != second.ref
    assert first.ref.name.startswith("fit-")
    assert repr(first) == f"<PyTorchJob default/{first.ref.name}>"


def test_a_submitted_job_can_be_deleted() -> None:
    """It is deleted while it runs; waiting for it then raises an error."""
    job = train(hangs, submit=True, name="hangs", exact_name=True)

    job.delete()

    assert job.ref.name == "hangs"
    with pytest.raises(JobDeleted, match="default/hangs is gone: somebody deleted it"):
        job.wait()


def test_an_interrupt_does_as_was_asked_for(machine: Machine, tmp_path: Path) -> None:
    """Ctrl-C in a script; without the option the job continues."""
    (tmp_path / "script.py").write_text(INTERRUPTED)
    script = subprocess.Popen(
        [sys.executable, "script.py"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert script.stdout is not None
    assert script.stdout.readline() == "begun\n"

    script.send_signal(2)

    _, found = script.communicate()
    assert "was deleted: interrupted" in found
    assert found.rstrip().endswith("KeyboardInterrupt")
    until("the job's end", lambda: machine.ptjob("list", "-o", "name").stdout == "", timeout=600)


REFUSED = {
    "an argument of the function": (
        {"rate": 2},
        r"rate: 2 is not allowed; it is an argument of \w+; allowed: by position, or in kwargs={'rate': …}",
    ),
    "a number of replicas for a role": ({"worker": 2}, r"worker: 2 is not allowed; .*did you mean workers\?"),
    "an option that no job has": ({"worker_count": 2}, r"worker_count: there is no such field; did you mean worker"),
    "a command": ({"command": ["python"]}, r"train: command: .*allowed: none; the function runs"),
    "another back-end": ({"backend": "slurm"}, r"backend: 'slurm' is not allowed; allowed: kubernetes, local"),
    "two places": ({"backend": "local", "cluster_context": "a"}, r"selects a cluster"),
    "an action": ({"on_finish_action": "keep"}, r"on_finish_action: 'keep' is not allowed"),
    "a time": (
        {"timeout": "2h"},
        r"timeout: '2h' is not allowed; allowed: a number of seconds above 0, or a timedelta",
    ),
    "a time of no end": ({"timeout": math.inf}, r"timeout: inf is not allowed; allowed: a number of seconds above 0"),
    "no regular expression": ({"progress": 5}, r"progress: 5 is not allowed; allowed: a regular expression of RE2"),
    "attempts that a handle does not have": (
        {"submit": True, "max_preemptions": 1},
        r"max_preemptions: 1 .*submit=True",
    ),
    "a number of restarts": ({"crash_loop_limit": -1}, r"crash_loop_limit: -1 is not allowed; allowed: a whole number"),
    "a word for a switch": (
        {"delete_on_interrupt": "no"},
        r"delete_on_interrupt: 'no' is not allowed; allowed: true or false",
    ),
    "no image": ({"backend": "kubernetes"}, r"image: None is not allowed; required"),
}


@each_row(("options", "expected"), REFUSED.values())
def test_a_wrong_option_is_refused_before_anything_runs(options: dict[str, Any], expected: str) -> None:
    """The message has the field, its value, and what is allowed."""
    with pytest.raises(InvalidSpec, match=expected):
        train(hangs, **options)


def test_a_rank_that_is_not_there_is_refused() -> None:
    """The message has the valid ranks."""
    job = train(hangs, submit=True)

    with pytest.raises(InvalidSpec, match="rank: 1 is not allowed; allowed: 0 to 0"):
        job.logs(rank=1)


def test_importing_the_package_loads_nothing() -> None:
    """`train` is loaded when it is used, without an orchestrator or a Kubernetes client."""
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["['ptjob_provider']", "[]"]
