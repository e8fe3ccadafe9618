"""Tests of `top`, `doctor`, `data` and `prune` on this machine."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import socket
import tarfile
import threading
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from fakes import ScriptedBackend
from ptjob_provider.cli import main, tables
from ptjob_provider.core.errors import PermissionDenied
from ptjob_provider.core.local.inspector import LocalFiles
from rows import each_row
from stand_in_watches import job

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from click.testing import Result

    from machine import Machine

RUNS_ON = "import time\nprint('begun', flush=True)\ntime.sleep(600)"


class AnsweringTerminal(io.BytesIO):
    """A terminal at which a user types an answer."""

    def isatty(self) -> bool:
        return True


def ask(answer: str, machine: Machine, *words: str) -> Result:
    """Run a command line at a terminal where this answer is typed."""
    return CliRunner().invoke(
        main, ["--root", str(machine.root), *words], input=AnsweringTerminal(f"{answer}\n".encode())
    )


def test_this_machine_is_a_node(machine: Machine) -> None:
    """With its cores and its memory; its GPUs are those that it lends to jobs."""
    shown = machine.ptjob("top", "node").output.splitlines()
    (node,) = json.loads(machine.ptjob("top", "node", "-o", "json").stdout)

    assert shown[0].split() == [
        *("NAME", "IPADDRESS", "ROLE", "STATUS", "GPU(Total)", "GPU(Allocated)", "CPU", "MEMORY"),
    ]
    assert shown[-2:] == ["Allocated/Total GPUs In Cluster:", "0/0 (0%)"]
    assert (node["name"], node["cpu"]) == (socket.gethostname(), len(os.sched_getaffinity(0)))


def test_cards_that_are_lent_are_counted(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a cluster: the GPUs of a running job are in use, and others may have some that are here."""
    monkeypatch.setenv("PTJOB_LOCAL_GPUS", "8")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    machine.ptjob("submit", "--name", "holds", "--image", "none", "--gpus", "1", "python", "-c", RUNS_ON)
    while not machine.ptjob("logs", "holds").stdout:
        time.sleep(0.05)

    assert machine.ptjob("top", "node").output.splitlines()[-1] == "1/4 (25%)"
    jobs = machine.ptjob("top", "job").output.splitlines()
    assert jobs[1].split()[:4] == ["holds", "1", "1", "Running"]
    assert jobs[-4:] == [
        "Total Allocated GPUs of Training Job:",
        "1",
        "Total Requested GPUs of Training Job:",
        "1",
    ]


def test_jobs_without_replicas_use_nothing(ended: Machine, machine: Machine) -> None:
    """An ended job is listed without a node; if there is none, a message says so."""
    listed = ended.ptjob("top", "job", "-o", "yaml").stdout

    assert listed.count("gpus_allocated: 0") == 2
    assert "good" in ended.ptjob("top", "job").output
    assert "Succeeded" in ended.ptjob("top", "job", "good").output
    assert "its own `top` shows them" in ended.ptjob("top", "job", "good").stderr
    assert machine.ptjob("top", "job").stderr.startswith("no jobs in namespace default")


def test_a_check_up_says_where_jobs_run(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a job lacks here, such as an interpreter, is said when it is submitted."""
    monkeypatch.setenv("PTJOB_LOCAL_PYTHON", "/none/python")

    result = machine.ptjob("doctor")
    ran = machine.ptjob("run", "--name", "lacks", "--image", "none", "--", "python", "-c", "1")

    assert result.exit_code == 0
    assert f"jobs of namespace default on {machine.root}:" in result.output
    assert "/none/python" in result.output
    assert (ran.exit_code, "/none/python: no such file or directory" in ran.output) == (1, True), ran.output


def test_a_source_is_shown_with_the_argument_that_reads_it(machine: Machine, tmp_path: Path) -> None:
    """Before there is a DAG; a source that cannot be listed is told as well."""
    (tmp_path / "in" / "2026" / "11").mkdir(parents=True)
    (tmp_path / "in" / "2026" / "11" / "a").write_text("1")
    (tmp_path / "in" / "2026" / "11" / "_SUCCESS").touch()

    output = machine.ptjob("doctor", "--source", str(tmp_path / "in"), "-o", "json")
    missing = machine.ptjob("doctor", "--source", str(tmp_path / "none"), "-o", "json")

    (check,) = [each for each in json.loads(output.stdout) if each["about"] == "source"]
    assert "depth=2 reads that" in check["advice"]
    assert "No such file" in missing.stdout


def test_a_claim_is_made_listed_filled_and_read(machine: Machine, tmp_path: Path) -> None:
    """A directory replaces the claim; jobs see what is copied there."""
    (tmp_path / "data" / "deep").mkdir(parents=True)
    (tmp_path / "data" / "deep" / "a.npz").write_bytes(b"12345")

    made = machine.ptjob("data", "create", "datasets")
    machine.ptjob("data", "cp", str(tmp_path / "data"), "pvc://datasets/digits")
    machine.ptjob("data", "cp", str(tmp_path / "data" / "deep" / "a.npz"), "pvc://datasets/")
    run = machine.ptjob("run", "--name", "x", "--image", "none", "-d", "datasets:/d", "cat /d/digits/deep/a.npz; echo")
    machine.ptjob("data", "cp", "pvc://datasets/digits/deep", str(tmp_path / "back"))

    assert made.output == "claim default/datasets is made; mount it: --data datasets:/path\n"
    assert machine.ptjob("data", "list", "-o", "name").stdout == "datasets\n"
    assert machine.ptjob("data", "list").output.splitlines()[0].split()[:3] == ["NAME", "ACCESSMODE", "SIZE"]
    assert machine.ptjob("data", "ls", "pvc://datasets", "-o", "name").stdout == "a.npz\ndigits/\n"
    assert machine.ptjob("data", "ls", "pvc://datasets/digits/deep").output.splitlines()[1].split()[:2] == [
        "a.npz",
        "5",
    ]
    assert run.stdout == "12345\n"
    assert (tmp_path / "back" / "a.npz").read_bytes() == b"12345"


class InspectorWithSlowFiles:
    """Gives access to a claim through a pod, and this process a signal before the pod is usable."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.pods = 0

    @asynccontextmanager
    async def files(self, *_: object, **__: object) -> AsyncIterator[None]:
        self.pods += 1
        try:
            os.kill(os.getpid(), self.number)
            await asyncio.sleep(60)
            yield
        finally:
            self.pods -= 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("words", [("ls", "pvc://c/"), ("cp", "pvc://c/x", "x"), ("cp", __file__, "pvc://c/x")])
def test_a_copy_that_is_stopped_leaves_no_pod(
    ptjob: Callable[..., Result], number: int, words: tuple[str, ...]
) -> None:
    inspector = InspectorWithSlowFiles(number)

    result = ptjob(None, "data", *words, inspector=inspector)

    assert inspector.pods == 0
    assert result.exit_code == 143


def test_a_copy_on_this_machine_that_is_stopped_replaces_nothing(tmp_path: Path) -> None:
    """The thread that copies does not notice that its task was cancelled."""
    (tmp_path / "model.pt").write_bytes(b"old")
    reads, goes_on = threading.Event(), threading.Event()

    class Slow(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            reads.set()
            goes_on.wait(60)
            return super().read(size)

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w|") as made:
        made.addfile(tarfile.TarInfo("model.pt"))

    async def stopped() -> None:
        copying = asyncio.create_task(LocalFiles(tmp_path).unpack(Slow(packed.getvalue()), "", "model.pt"))
        await asyncio.to_thread(reads.wait, 60)
        copying.cancel()
        await asyncio.wait([copying])
        goes_on.set()

    asyncio.run(stopped())  # which waits for the thread

    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("model.pt", b"old")]


@each_row(
    ("words", "code", "message"),
    [
        (["data", "ls", "pvc://there/../x"], 2, "leads out of the claim"),
        (["data", "ls", "pvc://there/x"], 2, "there is no x"),
        (["data", "create", "there"], 1, "default/there: there is such a claim"),
    ],
)
def test_a_copy_or_claim_that_cannot_be_made_is_refused(
    machine: Machine, words: list[str], code: int, message: str
) -> None:
    """The message names the part of the line that is wrong."""
    machine.ptjob("data", "create", "there")

    result = machine.ptjob(*words)

    assert (result.exit_code, message in result.output) == (code, True), result.output


def test_no_claims_is_said_where_it_was_looked(machine: Machine) -> None:
    """The message is on stderr, so that programs get an empty output."""
    assert machine.ptjob("-n", "ml", "data", "list").stderr == f"no claims in namespace ml of {machine.root}\n"


@each_row(("count", "text"), [(0, "0"), (1023, "1023"), (1536, "1.5Ki"), (2**30, "1Gi"), (3 * 2**50, "3072Ti")])
def test_bytes_are_said_in_kubernetes_units(count: int, text: str) -> None:
    """In the format of requests and limits."""
    assert tables.size(count) == text


def test_all_namespaces_are_looked_in_at_once(machine: Machine) -> None:
    """`-A`, as for kubectl and Arena, with each job's namespace."""
    for namespace in ("ml", "vision"):
        machine.ptjob("-n", namespace, "run", "--name", f"job-{namespace}", "--image", "none", "true")

    listed = machine.ptjob("list", "-A").output.splitlines()

    assert [line.split()[:2] for line in listed] == [["NAMESPACE", "NAME"], ["ml", "job-ml"], ["vision", "job-vision"]]
    assert machine.ptjob("list", "-o", "name").stdout == ""
    assert machine.ptjob("top", "job", "-A", "-o", "json").stdout.count('"namespace"') == 2


def test_jobs_that_ended_long_ago_are_pruned(machine: Machine) -> None:
    """By the time since their end; running jobs and written files are kept."""
    machine.ptjob("run", "--name", "ended", "--image", "none", "-d", "data:/data", "touch /data/kept")
    name = machine.submit("runs", RUNS_ON)
    machine.wait_for_line(name, "begun")

    young = machine.ptjob("prune")
    pruned = machine.ptjob("prune", "--since", "0s", "--yes")

    assert young.stderr == f"no job in namespace default of {machine.root} ended that long ago\n"
    assert pruned.output == "default/ended is deleted; its claims are as they were\n"
    assert (machine.root / "claims" / "default" / "data" / "kept").exists()
    assert machine.ptjob("list", "-o", "name").stdout == "runs\n"


def test_the_others_are_pruned_when_one_job_cannot_be_deleted(ptjob: Callable[..., Result]) -> None:
    backend = ScriptedBackend()
    backend.jobs = {("team", name): job(name, "Failed") for name in ("kept", "old", "older")}
    backend.refusals["delete"] = [PermissionDenied("may not delete kept", code=403)]

    pruned = ptjob(backend, "prune", "--since", "0s", "--yes")

    assert pruned.exit_code != 0
    assert "may not delete kept" in pruned.stderr
    assert [ref.name for ref in backend.deleted] == ["old", "older"]


def test_nothing_is_pruned_before_somebody_has_said_yes(machine: Machine) -> None:
    """Programs pass a flag; users see the list and answer a question; `--dry-run` deletes nothing."""
    machine.ptjob("run", "--name", "ended", "--image", "none", "true")
    prune = ("prune", "--since", "0s")

    output = machine.ptjob(*prune)
    listed = machine.ptjob(*prune, "--dry-run")
    denied = ask("n", machine, *prune)
    left = machine.ptjob("list", "-o", "name").stdout
    allowed = ask("y", machine, *prune)

    assert (output.exit_code, output.stdout) == (2, "")
    assert "--yes is missing: 1 job in namespace default of" in output.stderr
    assert (listed.exit_code, listed.stdout[:40]) == (0, "default/ended would be deleted: it ended")
    assert (denied.exit_code, left) == (1, "ended\n")
    assert "default/ended would be deleted" in denied.stdout
    assert "Delete 1 job in namespace default of" in denied.stderr
    assert (allowed.exit_code, machine.ptjob("list", "-o", "name").stdout) == (0, "")


def test_a_name_that_is_wrong_does_not_keep_the_others_waiting(machine: Machine) -> None:
    """As with kubectl: each name has its message, and the exit code says that one was refused."""
    for name in ("first", "last"):
        machine.ptjob("run", "--name", name, "--image", "none", "true")

    stopped = machine.ptjob("suspend", "first", "none", "last")
    deleted = machine.ptjob("delete", "first", "none", "last")

    assert stopped.exit_code == 1  # two have ended, one does not exist
    assert [line.split()[0] for line in stopped.stderr.splitlines()] == ["Error:"] * 3
    assert deleted.exit_code == 3
    assert [line.split()[0] for line in deleted.stdout.splitlines()] == ["default/first", "default/last"]
    assert "none" in deleted.stderr
    assert machine.ptjob("list", "-o", "name").stdout == ""
