"""Tests of `ptjob` on real jobs of this machine."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
import yaml

from fakes import ScriptedBackend
from machine import IDS
from ptjob_provider.cli import tables
from ptjob_provider.cli.logs import find_replica
from ptjob_provider.cli.output import Failure
from ptjob_provider.cli.target import airflow_section
from ptjob_provider.core.backend import Observation
from ptjob_provider.core.spec import TrainingJob
from rows import each_row
from same_fields import rendered
from stand_in_watches import job

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from click.testing import Result

    from machine import Machine
    from ptjob_provider.core.identity import JobRef
RUNS_ON = "import time\nprint('begun', flush=True)\ntime.sleep(600)"
COUNTS = "import time\nfor number in range(30):\n    print(number, flush=True)\n    time.sleep(0.1)"
COUNTS_IN_TWO = """
import os, time
print(*range(27), sep="\\n", flush=True)
while not os.path.exists("/data/go"):
    time.sleep(0.05)
print(*range(27, 30), sep="\\n", flush=True)
"""


class WatchedBackend(ScriptedBackend):
    """Counts how many jobs are watched at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.most = self._now = 0

    async def watch(self, ref: JobRef) -> AsyncGenerator[Observation, None]:
        """Yield a job without pods, after a moment."""
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            await asyncio.sleep(0.01)
            yield Observation(job=self.jobs[ref.namespace, ref.name])
        finally:
            self._now -= 1


def test_a_list_shows_each_job_with_its_phase_and_for_whom_it_runs(ended: Machine) -> None:
    """Users find a task's job without knowing how names are generated."""
    result = ended.ptjob("list")

    lines = result.output.splitlines()
    assert result.exit_code == 0
    assert lines[0].split() == ["NAME", "PHASE", "REASON", "REPLICAS", "AGE", "RAN", "KIND", "OWNER"]
    assert re.match(r"good +Succeeded +2 ", lines[1])
    assert re.match(r"bad +Failed +see ptjob get +2 ", lines[2])  # nobody has followed it
    assert lines[1].endswith("digits.train scheduled__2026-11-20, try 2")
    assert all("  PyTorchJob  " in line for line in lines[1:])


def test_a_wide_list_says_where_jobs_run(ended: Machine) -> None:
    first, *lines = ended.ptjob("list", "-o", "wide").output.splitlines()

    assert first.split() == ["NAME", "PHASE", "REASON", "REPLICAS", "AGE", "RAN", "KIND", "NODE", "OWNER"]
    assert all(f"  PyTorchJob  {os.uname().nodename}  " in line for line in lines)


def test_a_wide_list_asks_for_few_jobs_at_once(ptjob: Callable[..., Result]) -> None:
    """A namespace with a week's jobs does not open a connection for each."""
    names = [f"digits-{number:02d}" for number in range(40)]
    backend = WatchedBackend()
    backend.jobs = {("team", name): job(name) for name in names}

    result = ptjob(backend, "list", "-o", "wide")

    assert [line.split()[0] for line in result.stdout.splitlines()[1:]] == names
    assert backend.most == 16


def test_a_list_for_programs_has_the_same_values_in_json_and_yaml(ended: Machine) -> None:
    """Programs get phases, times and ids as data."""
    rows = json.loads(ended.ptjob("list", "-o", "json").stdout)

    assert yaml.safe_load(ended.ptjob("list", "-o", "yaml").stdout) == rows
    values = [(row["name"], row["phase"], row["replicas"], row["kind"]) for row in rows]
    assert values == [("good", "Succeeded", 2, "PyTorchJob"), ("bad", "Failed", 2, "PyTorchJob")]
    assert rows[0]["owner"] == {**IDS, "try_number": "2"}


def test_a_list_can_be_narrowed_by_labels(ended: Machine) -> None:
    assert ended.ptjob("list", "-o", "name", "-l", "dag_id=digits", "-l", "release=bad").stdout == "bad\n"
    assert ended.ptjob("list", "-o", "name", "-l", "dag_id=other").stdout == ""


def test_a_job_that_succeeded_shows_what_it_has_written(ended: Machine) -> None:
    """The model's address, size and digest are those of the file."""
    shown = ended.ptjob("get", "good").output
    result = json.loads(ended.ptjob("get", "good", "-o", "json").stdout)

    model = (ended.root / "claims" / "default" / "models" / "digits.pt").read_bytes()
    assert model == b"m" * 10
    assert (result["model"]["uri"], result["model"]["bytes"]) == ("pvc://models/digits.pt", 10)
    assert f"pvc://models/digits.pt (10 bytes, sha256 {result['model']['sha256']})" in shown
    assert result["diagnosis"] is None


def test_a_job_that_failed_shows_why_and_each_replicas_end(ended: Machine) -> None:
    """The reason in the task's log can be read here, too, without Airflow."""
    shown = ended.ptjob("get", "bad").output

    replicas = [line.split()[0] for line in shown.splitlines() if "the learning rate is not a number" in line]
    replicas = [word for word in replicas if word != "raise"]  # since 3.13, Python also quotes the source of `-c`
    assert replicas == ["reason", "ValueError:"]  # near the top, and in the last line of the replica's log
    rows = [line.split() for line in shown.splitlines() if line.startswith("1 ")]
    assert re.fullmatch(r"\d+s|\d+m\d+s", rows[0].pop(3))
    assert rows == [["1", "bad-worker-0", "Failed", os.uname().nodename, "1", "Error"]]
    assert "\nkind  " in shown
    result = yaml.safe_load(ended.ptjob("get", "bad", "-o", "yaml").stdout)
    assert (result["phase"], result["owner"]["task_id"]) == ("Failed", "train")
    assert result["replicas"] == [{"name": "bad-master-0", "rank": 0}, {"name": "bad-worker-0", "rank": 1}]
    table = [line.split() for line in shown.splitlines()]
    assert ["CONDITION", "STATUS", "SINCE", "REASON", "MESSAGE"] in table
    assert [line[0] for line in table if line[1:2] == ["True"]] == ["Created", "Failed"]
    assert not [line for line in table if line[:1] in (["replicas"], ["message"])]


@each_row("command", [["get", "none"], ["logs", "none"], ["delete", "none"]])
def test_a_job_that_is_not_there_has_an_exit_code_of_its_own(ended: Machine, command: list[str]) -> None:
    """Programs can tell it from every other failure."""
    result = ended.ptjob(*command)

    assert result.exit_code == 3
    assert "default has no job none (looked for PyTorchJob" in result.output


def test_wide_is_a_format_of_every_table(ended: Machine) -> None:
    """As users of kubectl and Arena write it; here it has the same columns as without it."""
    wide, usual = (ended.ptjob("events", "good", *words).output.splitlines() for words in (["-o", "wide"], []))

    assert wide[0] == usual[0]
    assert len(wide) == len(usual) > 1


@each_row("replica", ["good-worker-0", "worker-0", "1"])
def test_another_replicas_log_is_named_by_pod_role_or_rank(ended: Machine, replica: str) -> None:
    assert ended.ptjob("logs", "good", "-i", replica).stdout.splitlines()[0] == "rank 1 line 0"


def test_a_train_jobs_nodes_are_named_as_their_pods_end() -> None:
    """A diagnosis uses the same names."""
    made = rendered(TrainingJob.parse(name="digits", kind="TrainJob", image="digits:1", workers=2))
    pod = f"{made['metadata']['name']}-node-0-1"

    assert {find_replica(made, wanted) for wanted in (pod, "node-0-1", "node-1", "1")} == {pod}


def test_a_job_without_replicas_has_no_log() -> None:
    """The API server takes a manifest that kubectl has created so."""
    with pytest.raises(Failure, match="has no replicas, and so no log"):
        find_replica(job() | {"spec": {"pytorchReplicaSpecs": {}}}, None)


def test_a_replica_that_is_not_there_is_refused_with_those_that_are(ended: Machine) -> None:
    """The message lists the valid names."""
    result = ended.ptjob("logs", "good", "-i", "worker-7")

    assert result.exit_code == 2
    assert "allowed: 0 = good-master-0, 1 = good-worker-0" in result.output


@each_row(("tail", "lines"), [("2", ["rank 0 line 3", "rank 0 line 4"]), ("0", []), ("99", 5)])
def test_a_tail_is_the_logs_last_lines(ended: Machine, tail: str, lines: list[str] | int) -> None:
    """`-t` prints this many lines, or all."""
    printed = ended.ptjob("logs", "good", "-t", tail).stdout.splitlines()

    assert (len(printed) if isinstance(lines, int) else printed) == lines


def test_all_replicas_are_read_at_once_each_line_with_its_replica(ended: Machine) -> None:
    """In turn when the job has ended; as lines come while it runs."""
    read = ended.ptjob("logs", "good", "--all").stdout.splitlines()
    followed = ended.ptjob("logs", "good", "--all", "-f", "-t", "2").stdout.splitlines()

    assert read == [
        f"[{pod}] rank {rank} line {n}" for rank, pod in enumerate(("master-0", "worker-0")) for n in range(5)
    ]
    assert sorted(followed) == sorted(line for line in read if line[-1] in "34")


def test_the_since_options_print_only_recent_lines(machine: Machine) -> None:
    """By age or by time, as with kubectl; with a tail, those of the last lines that are recent enough."""
    name = machine.submit("counts", COUNTS_IN_TWO, volumes=["data:/data"])
    machine.wait_for_line(name, "26")  # and its time: later lines have other times
    (machine.root / "claims" / "default" / "data" / "go").touch()
    machine.finish(name)
    stamps = dict(line.split()[::-1] for line in machine.ptjob("logs", name, "--timestamps").stdout.splitlines())

    young = machine.ptjob("logs", name, "--since-time", stamps["27"]).stdout.split()
    tail = machine.ptjob("logs", name, "--since-time", stamps["27"], "-t", "20").stdout.split()

    assert young == tail == ["27", "28", "29"]
    assert machine.ptjob("logs", name, "--since", "1h", "-t", "-1").stdout.count("\n") == 30
    assert machine.ptjob("logs", name, "--since-time", "2999-01-01").stdout == ""


def test_logs_of_a_replica_that_never_ran_say_why_there_are_none(machine: Machine) -> None:
    """Its init container failed, and its log says why. No output is empty."""
    before = json.dumps({"name": "prepares", "image": "none", "command": ["sh", "-c", "echo gone; exit 3"]})
    job = ("--image", "none", "--working-dir", str(machine.root.parent), "--init-container", before, "true")
    machine.ptjob("run", "--name", "failed", *job)

    failed, followed, every = (
        machine.ptjob("logs", *words) for words in (["failed"], ["failed", "-f", "-t", "5"], ["failed", "--all"])
    )

    assert [each.exit_code for each in (failed, followed, every)] == [1] * 3
    assert failed.stderr == followed.stderr == every.stderr
    assert "init container prepares exited with code 3: its last line is “gone”" in failed.stderr
    assert failed.stderr.endswith("; more: ptjob get failed\n")


@each_row(
    ("words", "names"),
    [
        (["list"], ["good", "bad"]),
        (["get", "good"], ["good"]),
        (["top", "job"], ["good", "bad"]),
        (["top", "job", "good"], ["good-master-0", "good-worker-0"]),
        (["top", "node"], [os.uname().nodename]),
        (["doctor"], []),
        (["render", "--name", "new", "--image", "none"], ["new"]),
        (["follow", "good"], ["good"]),
    ],
)
def test_output_of_names_can_be_passed_to_other_commands(ended: Machine, words: list[str], names: list[str]) -> None:
    """`-o name` for any command; for `doctor` the missing items, for a followed job its own name."""
    assert ended.ptjob(*words, "-o", "name").stdout.splitlines() == names


def test_programs_get_a_jobs_events_with_it(ended: Machine) -> None:
    """The events of `-e` are included."""
    output = json.loads(ended.ptjob("get", "good", "-e", "-o", "json").stdout)

    assert output["events"] == json.loads(ended.ptjob("events", "good", "-o", "json").stdout)
    assert {event["reason"] for event in output["events"]} == {"NotApplied"}
    assert "events" not in json.loads(ended.ptjob("get", "good", "-o", "json").stdout)


def completed(*words: str, **variables: str) -> list[str]:
    """Return a shell's completions for the last word of a command line, with a longer timeout for tests."""
    environment = {
        "PATH": os.defpath,
        "_PTJOB_COMPLETE": "bash_complete",
        "COMP_WORDS": shlex.join(["ptjob", *words]),
        "COMP_CWORD": str(len(words)),
        **variables,
    }
    program = "from ptjob_provider.cli import completion, main; completion._TIMEOUT = 60; main(prog_name='ptjob')"
    command = [sys.executable, "-c", program]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    return [line.removeprefix("plain,") for line in printed.split()]


@each_row(
    ("words", "offered"),
    [
        (["tensorboard", "b"], ["bad"]),
        (["top", "job", "g"], ["good"]),
        (["submit", "--kind", "PyTorchT"], ["pytorchtrainingjob"]),
        (["submit", "--restart-policy", "O"], ["OnFailure"]),
        (["get", "-n", "default", "g"], ["good"]),
        (["get", "-n", "team", "g"], []),
    ],
)
def test_a_shell_completes_what_is_there(ended: Machine, words: list[str], offered: list[str]) -> None:
    """Jobs, and a field's allowed values."""
    assert completed("--root", str(ended.root), *words) == offered


def test_following_prints_what_is_written_until_the_container_ends(machine: Machine) -> None:
    """`-f -t 1` begins with the available line and misses no later one."""
    name = machine.submit("counts", COUNTS)
    while not (begun := machine.ptjob("logs", name, "-t", "1").stdout.split()):
        time.sleep(0.05)

    printed = machine.ptjob("logs", name, "-f", "-t", "1").stdout.split()

    assert int(printed[0]) >= int(begun[0])
    assert printed == [str(number) for number in range(int(printed[0]), 30)]


def test_a_deleted_job_is_gone_and_its_claims_are_not(machine: Machine) -> None:
    """Deleting stops the processes and removes the job; its written files are kept."""
    name = machine.submit("good", "open('/data/kept', 'w').write('x')\n" + RUNS_ON, volumes=["data:/data"])
    machine.wait_for_line(name, "begun")

    result = machine.ptjob("delete", name)

    assert result.output == "default/good is deleted; its claims are as they were\n"
    assert machine.ptjob("get", name).exit_code == 3
    assert (machine.root / "claims" / "default" / "data" / "kept").read_text() == "x"


def test_deleting_what_is_not_there_can_be_good_enough(machine: Machine) -> None:
    """Clean-up scripts need no check before."""
    result = machine.ptjob("delete", "none", "--ignore-not-found")

    assert (result.exit_code, result.output) == (0, "")


def test_the_root_of_airflows_configuration_is_the_default(tmp_path: Path) -> None:
    """The command line reads Airflow's configuration for the root; it does not load Airflow."""
    (tmp_path / "airflow.cfg").write_text("[core]\nfernet_key = %x\n[ptjob]\nlocal_root = /data/jobs\n")

    assert airflow_section({"AIRFLOW_HOME": str(tmp_path)}) == {"local_root": "/data/jobs"}
    assert airflow_section({"AIRFLOW_CONFIG": str(tmp_path / "airflow.cfg")}) == {"local_root": "/data/jobs"}
    assert airflow_section({"AIRFLOW_HOME": str(tmp_path / "none")}) == {}


@each_row("text", ["no section", "[ptjob\n", "[core]\nx = 1\n"])
def test_an_airflow_configuration_without_our_section_changes_nothing(tmp_path: Path, text: str) -> None:
    """Nor does a broken file; Airflow reports that better."""
    (tmp_path / "airflow.cfg").write_text(text)

    assert airflow_section({"AIRFLOW_HOME": str(tmp_path)}) == {}


@each_row(
    ("span", "text"),
    [
        (timedelta(seconds=-3), "0s"),
        (timedelta(seconds=45), "45s"),
        (timedelta(minutes=3, seconds=12), "3m12s"),
        (timedelta(hours=2, minutes=5), "2h5m"),
        (timedelta(days=3, hours=4, minutes=59), "3d4h"),
    ],
)
def test_spans_are_said_in_their_two_largest_units(span: timedelta, text: str) -> None:
    """As in kubectl."""
    assert tables.duration(span) == text


@each_row(
    ("owner", "text"),
    [
        ({"dag_id": "d", "task_id": "t", "run_id": "r", "map_index": "3", "try_number": "2"}, "d.t[3] r, try 2"),
        ({"dag_id": "d", "task_id": "t", "run_id": "r", "map_index": "-1"}, "d.t r"),
        ({"run": "4711"}, "run=4711"),
        ({}, ""),
    ],
)
def test_an_owner_is_said_in_its_orchestrators_words(owner: dict[str, str], text: str) -> None:
    """Airflow's ids are formatted as in its own log lines; others are listed."""
    assert tables.owner_text(owner) == text


def test_without_any_configuration_the_root_is_in_airflows_home(tmp_path: Path) -> None:
    """The command line and Airflow use the same root without configuration."""
    command = [sys.executable, "-c", "from ptjob_provider.cli import main; main()", "list"]
    environment = {"PATH": os.defpath, "HOME": str(tmp_path)}

    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stderr

    assert said == f"no jobs in namespace default of {tmp_path}/airflow/ptjob\n"


def test_the_kind_of_a_job_may_be_said_in_any_case(ended: Machine) -> None:
    """As users of kubectl write it."""
    assert ended.ptjob("logs", "good", "--kind", "pytorchjob", "-t", "1").stdout == "rank 0 line 4\n"
    assert ended.ptjob("list", "--kind", "PyTorchJob", "-o", "name").stdout == "good\nbad\n"
