"""Tests of `submit`, `run` and `follow` on real jobs of this machine."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from cluster.shell import until
from fakes import BackendWithTakenNames, ScriptedBackend
from ptjob_provider.cli.following import TerminalSink
from ptjob_provider.cli.live_line import LiveLine
from ptjob_provider.core.diagnosis import Cause, Diagnosis
from ptjob_provider.core.errors import JobFailed
from ptjob_provider.core.identity import JobRef, Owner
from ptjob_provider.core.kinds import PYTORCHJOB
from ptjob_provider.core.run.outcome import JobOutcome, Outcome, raise_for
from ptjob_provider.core.status import JobPhase, JobStatus
from rows import each_row

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

    from machine import Machine

WRITES = """
import os, pathlib
print("rank", os.environ["RANK"])
pathlib.Path(os.environ["PTJOB_MODEL_PATH"]).write_text("m")
"""
LEADS_ELSEWHERE = """
import os
os.symlink("/etc/hostname", os.environ["PTJOB_MODEL_PATH"])
"""
LAST = ("step 5", "ValueError: bad")
LOSES = "print('so far', flush=True)\nraise ValueError('loss is nan')"
RUNS_ON = "import time\nprint('begun', flush=True)\ntime.sleep(600)"
MANIFEST = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: by-hand}
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      restartPolicy: Never
      template:
        spec:
          containers: [{name: pytorch, image: none, command: [python, -c, "print('by hand')"]}]
"""


DIGITS = ("--name", "digits", "--image", "digits:1", "--tfevents", "pvc://models/logs", "--tensorboard")


@pytest.mark.parametrize("words", [["python", "-c", WRITES], ["--", "python", "-c", WRITES]])
def test_a_run_shows_the_log_and_ends_as_the_job_ends(machine: Machine, words: list[str]) -> None:
    """The program's lines go to stdout, messages to stderr; outputs are verified as for a task."""
    result = machine.ptjob("run", "--name", "digits", "--image", "none", "--model", "pvc://models/m.pt", *words)

    assert result.exit_code == 0, result.output
    assert result.stdout == "rank 0\n"
    assert "default/digits succeeded" in result.stderr
    found = json.loads(machine.ptjob("get", "digits", "-o", "json").stdout)
    assert found["model"]["bytes"] == 1
    assert found["owner"].keys() == {"submitted_by", "submission"}


@pytest.mark.parametrize(("error", "code"), [("ValueError", 1), ("NameError", 1), ("gaierror", 75)])
def test_a_failed_run_says_why_and_ends_with_75_only_where_the_cause_passes_by_itself(
    machine: Machine, error: str, code: int
) -> None:
    """The message is that of an Airflow task. A task is retried for more causes than those that give a script 75."""
    program = LOSES.replace("raise ValueError", f"from socket import gaierror; raise {error}")

    result = machine.ptjob("run", "--name", "bad", "--image", "none", "python", "-c", program)

    assert result.exit_code == code
    assert "so far" in result.stdout
    assert "default/bad failed: master-0 (rank 0) exited with code 1: " in result.stderr
    assert f"{error}: loss is nan." in result.stderr
    assert "Last lines of" not in result.stderr  # stdout ends with them
    assert ("a retry may help" in result.stderr) is (code == 75)
    noted = json.loads(annotations(machine, "bad")["ptjob-provider/diagnosis"])
    assert noted["retryable"] is (error != "NameError")


@pytest.mark.parametrize(
    ("shown", "tail"),
    [
        (["worker-0 exited with code 1; its last lines:", "    step 5", "    ValueError: bad"], ()),
        (["worker-0 exited with code 1; its last lines:", "    ValueError: bad"], LAST),
        (["worker-0 exited with code 1", *[f"    {each}" for each in ("step 5", "ValueError: bad")], *"x" * 99], LAST),
    ],
    ids=["just before", "not all", "long before"],
)
def test_last_lines_are_not_printed_twice_in_a_row(shown: list[str], tail: tuple[str, ...]) -> None:
    """The error names the replica; its lines are printed above, unless much has been printed since."""
    sink, status = TerminalSink(lines_to_stderr=True, live=LiveLine()), JobStatus(phase=JobPhase.FAILED)
    ref = JobRef(kind="PyTorchJob", namespace="team", name="digits", uid="u")
    why = Diagnosis.of(Cause.PYTHON_EXCEPTION, "it raised", replica="worker-0", log_tail=LAST)

    sink.notice("\n".join(shown))

    with pytest.raises(JobFailed) as raised:
        raise_for(ref, JobOutcome(outcome=Outcome.FAILED, status=status, diagnosis=why), shown=sink.shown)
    assert raised.value.diagnosis.log_tail == tail


def test_a_runs_result_goes_to_stdout_alone_if_it_is_asked_for(machine: Machine) -> None:
    """`ptjob run -o json … | jq` gets one value; users still see the log."""
    result = machine.ptjob("run", "-o", "json", "--name", "digits", "--image", "none", "echo hello")

    assert "hello" in result.stderr
    assert json.loads(result.stdout)["phase"] == "Succeeded"


def test_a_run_is_stopped_at_its_timeout(machine: Machine) -> None:
    """The job is deleted. A retry may succeed, so the exit code is 75."""
    result = machine.ptjob("run", "--timeout", "2s", "--name", "long", "--image", "none", "python", "-c", RUNS_ON)

    assert result.exit_code == 75
    wait_for_object(machine, "long", is_there=False)


def test_a_name_that_is_taken_is_refused_and_nothing_is_touched(machine: Machine) -> None:
    """The job may run or have ended: a second submit neither trains again nor adopts it."""
    machine.ptjob("submit", "--name", "digits", "--image", "none", "true")
    machine.finish("digits")
    before = json.loads(machine.ptjob("get", "digits", "-o", "json").stdout)["job"]["uid"]

    result = machine.ptjob("submit", "--name", "digits", "--image", "none", "true")

    assert result.exit_code == 1
    assert (
        "default/digits exists already; look at it: ptjob get digits; remove it: ptjob delete digits" in result.output
    )
    assert json.loads(machine.ptjob("get", "digits", "-o", "json").stdout)["job"]["uid"] == before


def test_a_submitted_job_is_named_with_the_namespace_that_other_commands_need(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(MANIFEST.replace("{name: by-hand", "{namespace: other, name: by-hand"))

    output = machine.ptjob("submit", "-f", str(tmp_path / "job.yaml")).stderr

    follow, logs, delete = re.findall(r"ptjob ([^;\n]*)", output)
    assert machine.ptjob(*follow.split()).exit_code == 0
    assert "by hand" in machine.ptjob(*logs.split()).stdout
    assert machine.ptjob(*delete.split()).exit_code == 0


def test_the_namespace_of_a_command_overrides_that_of_a_file_of_fields(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "fields.yaml").write_text("{name: x, image: i, namespace: other, command: [ls]}")

    manifest = machine.ptjob("render", "-n", "team", "-o", "json", "-f", str(tmp_path / "fields.yaml")).stdout

    assert json.loads(manifest)["metadata"]["namespace"] == "team"


def test_a_generated_name_that_is_taken_is_refused_with_its_owner(ptjob: Callable[..., Result], tmp_path: Path) -> None:
    """The manifest has the beginning of a name, as with kubectl. The existing job is not changed."""
    backend = BackendWithTakenNames(Owner(instance="prod", ids={"dag_id": "nightly"}, labels={}), taken=1)
    (tmp_path / "job.yaml").write_text(MANIFEST.replace("name: by-hand", "generateName: by-hand-"))

    result = ptjob(backend, "submit", "-f", str(tmp_path / "job.yaml"))

    assert re.search(r"team/by-hand-\w{12}: .* did not create: .* dag_id=nightly of 'prod'; choose", result.stderr)
    assert (result.exit_code, result.stdout, backend.deleted) == (1, "", [])


def test_a_job_without_a_kind_runs_here_whatever_kind_is_preferred(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This machine only runs PyTorchJobs; another kind is an error if it is requested."""
    monkeypatch.setenv("PTJOB_KIND", "TrainJob")

    result = machine.ptjob("run", "--name", "any", "--image", "none", "true")
    refused = machine.ptjob("run", "--name", "named", "--kind", "TrainJob", "--image", "none", "true")

    assert (result.exit_code, "PyTorchJob, uid" in result.stderr) == (0, True)
    assert refused.exit_code != 0
    assert "TrainJob' is not allowed; this machine runs kubeflow.org/v1 PyTorchJob" in refused.stderr


def test_options_of_the_installation_hold_for_the_command_line(machine: Machine, tmp_path: Path) -> None:
    """The images' substitutes and the job template are Airflow's, or come from variables."""
    (tmp_path / "image").mkdir()
    (tmp_path / "image" / "Dockerfile").write_text('FROM x\nENV FROM_IMAGE=yes\nENTRYPOINT ["python", "-c"]\n')
    environment = {
        "PTJOB_LOCAL_IMAGES": json.dumps({"mine": str(tmp_path / "image")}),
        "PTJOB_JOB_TEMPLATE": json.dumps({"labels": {"team": "vision"}}),
    }

    shown = "import os; print(os.environ['FROM_IMAGE'])"
    result = ptjob_with(
        machine, "run", "--name", "mine", "--image", "mine", "--args", json.dumps([shown]), **environment
    )

    assert (result.returncode, result.stdout) == (0, "yes\n"), result.stderr
    assert machine.ptjob("list", "-o", "name", "-l", "team=vision").stdout == "mine\n"


def test_an_option_that_cannot_be_read_is_named(machine: Machine) -> None:
    """Before anything starts; commands that only read ignore it."""
    environment = {"PTJOB_JOB_TEMPLATE": "/none.yaml"}

    result = ptjob_with(machine, "submit", "--name", "x", "--image", "none", "true", **environment)

    assert result.returncode == 2
    assert "$PTJOB_JOB_TEMPLATE: No such file" in result.stderr
    assert ptjob_with(machine, "list", **environment).returncode == 0


def test_jobs_of_this_machine_are_not_suspended(machine: Machine) -> None:
    """Neither before they start nor while they run; an ended job has nothing to suspend."""
    name = machine.submit("runs", RUNS_ON)
    machine.wait_for_line(name, "begun")
    machine.ptjob("run", "--name", "ended", "--image", "none", "true")

    submitted = machine.ptjob("submit", "--suspend", "--name", "waits", "--image", "none", "true")
    running, resumed, ended = (
        machine.ptjob("suspend", name),
        machine.ptjob("resume", name),
        machine.ptjob("suspend", "ended"),
    )

    assert (submitted.exit_code, running.exit_code, resumed.exit_code, ended.exit_code) == (2, 2, 2, 1)
    for refused in (submitted, running, resumed):
        assert "spec.runPolicy.suspend: jobs cannot be suspended on this machine; delete the job" in refused.stderr
    assert phase(machine, name) == "Running"


def test_a_command_needs_no_image_on_this_machine(machine: Machine, tmp_path: Path) -> None:
    """No sentence is about an image; without a command, the image would say what to run."""
    (tmp_path / "train.py").write_text("print('trained')\n")
    words = ["--code", str(tmp_path), "--", "python", "train.py"]

    ran = machine.ptjob("run", "--name", "plain", *words)
    without = machine.ptjob("run", "--name", "nothing")
    rendered = machine.ptjob("render", "--name", "plain", *words)

    assert ran.exit_code == 0, ran.stderr
    assert "image" not in ran.stderr
    for needs_one in (without, rendered):
        assert needs_one.exit_code == 2
        assert "--image" in needs_one.stderr


@pytest.mark.parametrize(
    ("words", "number", "code", "runs_on"),
    [([], signal.SIGINT, 130, True), (["--delete-on-interrupt"], signal.SIGTERM, 143, False)],
)
def test_an_interrupt_ends_the_looking_and_the_job_only_if_that_was_asked_for(
    machine: Machine, words: list[str], number: int, code: int, *, runs_on: bool
) -> None:
    """Ctrl-C while a log is printed does not mean to stop a training that may have run for days."""
    at_a_terminal = ["env", "--default-signal=INT"]  # processes of a test run in the background ignore Ctrl-C
    command = [
        *at_a_terminal,
        *machine.command("run", *words, "--name", "long", "--image", "none", "python", "-c", RUNS_ON),
    ]
    with subprocess.Popen(
        command, env=environment_of(machine), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(number)
        said = process.stderr.read()

    assert process.returncode == code
    assert ("default/long is left as it is; follow it: ptjob follow long" in said) is runs_on
    assert ("default/long was deleted: interrupted" in said) is not runs_on
    assert "Traceback" not in said
    wait_for_object(machine, "long", is_there=runs_on)


class InterruptedBackend(ScriptedBackend):
    """Is slow to create a TensorBoard, and gets SIGTERM meanwhile; the job may change or be deleted before."""

    def __init__(self, **change: Any) -> None:
        super().__init__()
        self.change = change

    async def ensure_tensorboard(self, ref: JobRef) -> str:
        self.jobs[ref.namespace, ref.name].update(self.change)
        if "gone" in self.change:
            del self.jobs[ref.namespace, ref.name]
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()
        return ""


DELETES = ("run", "--delete-on-interrupt")
ENDED = {"status": {"conditions": [{"type": "Failed", "status": "True"}]}}
OVER = "team/digits had ended, or is gone; look at it: ptjob get"


@each_row(
    ("words", "change", "deleted", "text"),
    [
        (DELETES, {}, 1, "team/digits was deleted: interrupted"),
        (DELETES, ENDED, 0, OVER),
        (DELETES, {"gone": True}, 0, OVER),
        (("submit",), {}, 0, "team/digits is left as it is; follow it: ptjob follow -n team digits"),
    ],
)
def test_an_interrupt_while_its_tensorboard_is_made_is_one_of_a_known_job(
    ptjob: Callable[..., Result], words: tuple[str, ...], change: dict[str, Any], deleted: int, text: str
) -> None:
    """The job is deleted, or the message names it; the record of an ended job is kept as without an interrupt."""
    backend = InterruptedBackend(**change)

    result = ptjob(backend, *words, *DIGITS)

    assert (result.exit_code, backend.created, len(backend.deleted)) == (143, 1, deleted)
    assert text in result.stderr


@pytest.mark.parametrize("url", ["http://10.0.0.7:30131/", ""])
def test_a_tensorboard_that_nobody_waits_for_is_said_to_stay(ptjob: Callable[..., Result], url: str) -> None:
    backend = ScriptedBackend()
    backend.tensorboard_url = url

    result = ptjob(backend, "submit", *DIGITS)

    assert result.stdout.startswith("team/digits was submitted")
    assert ("team/digits: its TensorBoard runs until the job is deleted\n" in result.stderr) is bool(url)


def test_following_a_job_of_somebody_else_changes_nothing(machine: Machine) -> None:
    """Its task follows and annotates it; other followers do not, unless they adopt it."""
    name = machine.submit("theirs", LOSES)

    result = machine.ptjob("follow", name)
    untouched = annotations(machine, name)
    adopted = machine.ptjob("follow", "--adopt", name)

    assert (result.exit_code, adopted.exit_code) == (1, 1)
    assert "ValueError: loss is nan" in result.stderr
    assert "ptjob-provider/diagnosis" not in untouched
    assert "ptjob-provider/diagnosis" in annotations(machine, name)


def test_an_interrupt_or_a_timeout_deletes_only_what_is_adopted_or_ones_own(machine: Machine) -> None:
    """An Airflow task may wait for the job: a user who stops following it must not delete it."""
    theirs = machine.submit("theirs", LOSES)
    machine.ptjob("submit", "--name", "mine", "--image", "none", "python", "-c", RUNS_ON)

    for option in (("--delete-on-interrupt",), ("--timeout", "1h")):
        refused = machine.ptjob("follow", *option, theirs)
        assert refused.exit_code == 2
        assert f"{option[0]} would delete default/{theirs}, which something else made; --adopt" in refused.output
    adopted = machine.ptjob("follow", "--delete-on-interrupt", "--adopt", theirs)
    mine = machine.ptjob("follow", "--timeout", "1s", "mine")

    assert adopted.exit_code == 1
    assert "ValueError: loss is nan" in adopted.stderr
    assert mine.exit_code == 75
    wait_for_object(machine, "mine", is_there=False)


@pytest.mark.parametrize(
    ("action", "is_there"), [("keep_job", True), ("delete_job", False), ("delete_succeeded_job", False)]
)
def test_the_object_of_an_ended_job_goes_if_that_is_asked_for(machine: Machine, action: str, *, is_there: bool) -> None:
    """Written files are kept in any case."""
    machine.ptjob("run", "--on-finish-action", action, "--name", "short", "--image", "none", "true")

    wait_for_object(machine, "short", is_there=is_there)


def test_a_job_whose_outputs_nobody_could_look_at_is_kept(machine: Machine) -> None:
    """Another try may verify them, and deletes the job; the message has the command for it."""
    words = ["--model", "pvc://models/m.pt", "python", "-c", LEADS_ELSEWHERE]
    result = machine.ptjob("run", "--on-finish-action", "delete_job", "--name", "odd", "--image", "none", *words)

    assert (result.exit_code, phase(machine, "odd")) == (75, "Succeeded")
    assert "its outputs could not be looked at" in result.stderr
    assert "default/odd is kept; look again: ptjob follow odd" in result.stderr

    (machine.root / "claims" / "default" / "models" / "m.pt").unlink()
    (machine.root / "claims" / "default" / "models" / "m.pt").write_text("m")
    again = machine.ptjob("follow", "odd")

    assert again.exit_code == 0, again.stderr


@pytest.mark.parametrize("is_there", [False, True])
def test_files_of_local_jobs_can_be_read_only_by_their_user(machine: Machine, *, is_there: bool) -> None:
    """Whatever the process's umask is; an existing folder keeps its mode."""
    if is_there:
        machine.root.mkdir(mode=0o755)
    words = ["run", "--name", "digits", "--image", "none", "--model", "pvc://models/m.pt", "python", "-c", WRITES]
    subprocess.run(machine.command(*words), env=environment_of(machine), umask=0o022, check=True)
    ran, claim = machine.root / "jobs" / "default" / "digits", machine.root / "claims" / "default" / "models"

    folders = [ran, *ran.parents[:2], claim, *claim.parents[:2]]
    files = [each for each in ran.rglob("*") if each.is_file() and ran / "run" not in each.parents]

    assert {each.name: oct(each.stat().st_mode & 0o777) for each in folders} == {each.name: "0o700" for each in folders}
    assert len(files) > 3
    assert {each.name: oct(each.stat().st_mode & 0o077) for each in files} == {each.name: "0o0" for each in files}
    assert oct(machine.root.stat().st_mode & 0o777) == ("0o755" if is_there else "0o700")


def phase(machine: Machine, name: str) -> str:
    """Return the job's phase."""
    return str(json.loads(machine.ptjob("get", name, "-o", "json").stdout)["phase"])


def annotations(machine: Machine, name: str) -> dict[str, str]:
    """Return the job's annotations."""
    job = asyncio.run(machine.backend.get(PYTORCHJOB.KIND, "default", name))
    assert JobRef.of(job).name == name
    return dict(job["metadata"].get("annotations") or {})


def wait_for_object(machine: Machine, name: str, *, is_there: bool) -> None:
    """Wait until the job's object is there, or is gone."""
    until("the job's object", lambda: (machine.ptjob("get", name).exit_code == 0) is is_there, timeout=240)


def environment_of(machine: Machine, **more: str) -> dict[str, str]:
    """Return the environment of a user whose jobs run on this machine."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PTJOB"))}
    return {**kept, "PTJOB_LOCAL_ROOT": str(machine.root), **more}


def ptjob_with(machine: Machine, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command line with these variables."""
    env = environment_of(machine, **environment)
    return subprocess.run(machine.command(*words), env=env, capture_output=True, text=True, check=False)
