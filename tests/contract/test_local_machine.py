"""Tests of what only the local back-end has: its supervisor, its devices, its substitutes for images, its files."""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import signal
import sys
import textwrap
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fakes import ListSink, MemoryStore
from local_world import environment, processes_of, supervisor_of
from ptjob_provider.core.diagnosis import Cause
from ptjob_provider.core.errors import ClusterUnavailable, JobFailed
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.local.backend import LocalBackend, admitted, created
from ptjob_provider.core.local.config import LocalConfig
from ptjob_provider.core.local.store import JobStore
from ptjob_provider.core.outputs.contract import ResolvedOutput, ResolvedOutputs
from ptjob_provider.core.run.follow import FollowOptions
from ptjob_provider.core.run.session import Session
from ptjob_provider.core.run.snapshot import look
from ptjob_provider.core.run.training_state import TrainingState
from ptjob_provider.core.spec import TrainingJob
from ptjob_provider.core.spec.on_finish import OnFinishAction
from recorded import OWNER
from traces import files_with
from worlds import PATIENCE, STATE, World, condition, has_ended, held, is_running, terminations

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

SLEEP = "import time; print('up', flush=True); time.sleep(600)"
CANARY = f"canary-{secrets.token_hex(8)}"
ESCAPE = """
    import os, subprocess, sys, time
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    print("up", flush=True)
    time.sleep(600)
"""


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Callable[..., World]]:
    """Return a function that makes a world with the given configuration; all worlds share one root."""
    worlds: list[World] = []

    def make(**config: Any) -> World:
        fields = {"root": tmp_path / "root", "environment": environment(), **config}
        made, claims = LocalConfig(**fields), tmp_path / "root/claims/default"
        worlds.append(World(backend=LocalBackend(made), image="example.org/train:1", claim=lambda name: claims / name))
        return worlds[-1]

    yield make
    for world in worlds:
        await world.clear()


@pytest.fixture
def world(machine: Callable[..., World]) -> World:
    """Return a world with the usual configuration."""
    return machine()


async def test_a_killed_supervisor_is_seen_as_a_failure(world: World, tmp_path: Path) -> None:
    """The next call ends the supervisor's processes; the job has failed with a reason of its own, and its log ends."""
    ref = await world.submit(world.job("lost", ESCAPE, SLEEP))
    reading = asyncio.create_task(world.text(ref, "lost-master-0"))
    await world.line(ref, "lost-master-0", "up")

    os.kill(supervisor_of(tmp_path / "root", ref), signal.SIGKILL)
    seen = await world.observe(ref, has_ended)

    failed = condition(seen[-1].job, "Failed")
    assert failed["reason"] == "SupervisorLost"
    assert [pod["status"]["reason"] for pod in seen[-1].pods] == ["SupervisorLost"] * 2
    assert processes_of(ref) == []
    assert await world.backend.pods_gone(ref)
    assert await reading == ["up"]


async def test_the_replicas_of_a_killed_supervisor_die_by_themselves(world: World, tmp_path: Path) -> None:
    """They do so without any further call."""
    ref = await world.submit(world.job("alone", SLEEP))
    await world.line(ref, "alone-master-0", "up")

    os.kill(supervisor_of(tmp_path / "root", ref), signal.SIGKILL)

    await until(lambda: processes_of(ref) == [])


async def test_a_supervisor_that_gets_sigterm_ends_the_job(world: World, tmp_path: Path) -> None:
    """SIGTERM, as at shutdown: nothing keeps running, and the job has the reason."""
    ref = await world.submit(world.job("term", SLEEP))
    await world.line(ref, "term-master-0", "up")

    os.kill(supervisor_of(tmp_path / "root", ref), signal.SIGTERM)
    seen = await world.observe(ref, has_ended)

    assert condition(seen[-1].job, "Failed")["reason"] == "SupervisorLost"
    assert "SIGTERM" in condition(seen[-1].job, "Failed")["message"]
    assert processes_of(ref) == []


async def test_processes_that_a_replica_leaves_behind_end_with_it(world: World) -> None:
    """In a container, too, other processes end with the first one."""
    program = ESCAPE.replace("time.sleep(600)\n", "", 1).replace("    time.sleep(600)\n", "")

    ref, seen = await world.run(world.job("remains", program))

    assert condition(seen[-1].job, "Succeeded")
    assert processes_of(ref) == []


async def test_a_job_outlives_its_submitter_and_a_closed_terminal(world: World, tmp_path: Path) -> None:
    """The submitting process ends, its terminal hangs up, and the job continues."""
    manifest = tmp_path / "job.json"
    manifest.write_text(json.dumps(world.job("outlive", SLEEP)))
    program = f"""
import asyncio, json, os, signal, sys
from pathlib import Path
from ptjob_provider.core.local.backend import LocalBackend
from ptjob_provider.core.local.config import LocalConfig
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whatever started these tests may ignore it
backend = LocalBackend(LocalConfig(root=Path({str(tmp_path / "root")!r})))
ref = asyncio.run(backend.submit(json.loads(Path({str(manifest)!r}).read_text())))
print(json.dumps(ref.to_dict()), flush=True)
os.kill(0, signal.SIGHUP)
"""
    submitter = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    written, _ = await submitter.communicate()
    assert submitter.returncode == -signal.SIGHUP
    ref = JobRef.from_dict(json.loads(written))
    world.refs.append(ref)

    os.kill(supervisor_of(tmp_path / "root", ref), signal.SIGHUP)
    await world.observe(ref, is_running)
    await asyncio.sleep(0.5)

    assert condition(await world.backend.get("PyTorchJob", "default", "outlive"), "Running")


async def test_a_submission_that_was_interrupted_is_seen_as_a_failure(world: World, tmp_path: Path) -> None:
    """The name is taken, but no supervisor runs: the job has failed as soon as its submitter is gone."""
    job = admitted(world.job("half", SLEEP))

    with created(JobStore(tmp_path / "root").files("default", "half"), job, []):
        before = await world.backend.get("PyTorchJob", "default", "half")
    ref = JobRef.of(before)
    world.refs.append(ref)
    seen = await world.observe(ref, has_ended)

    assert not condition(before, "Failed")
    assert condition(seen[-1].job, "Failed")["reason"] == "SupervisorLost"


async def test_a_secret_is_in_no_file(machine: Callable[..., World], tmp_path: Path) -> None:
    """The program gets it as a variable, an argument and a file; no file on disk has it, during the run and after."""
    world = machine(secrets={"s": {"token": CANARY, "other": "x"}}, config_maps={"m": {"mode": "fast"}})
    env = [
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "token"}}},
        {"name": "MODE", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "mode"}}},
        {"name": "NONE", "valueFrom": {"secretKeyRef": {"name": "s", "key": "no", "optional": True}}},
    ]
    container = {
        "env": env,
        "envFrom": [{"prefix": "ALL_", "secretRef": {"name": "s"}}],
        "args": ["$(TOKEN)"],
        "volumeMounts": [{"name": "v", "mountPath": "/secret", "readOnly": True}],
    }
    program = """
        import os, sys, time, pathlib
        same = {os.environ["TOKEN"], os.environ["ALL_token"], sys.argv[1], pathlib.Path(os.environ["FILE"]).read_text()}
        print(len(same), len(os.environ["TOKEN"]), os.environ["MODE"], os.environ.get("NONE"), flush=True)
        time.sleep(600)
    """
    container["env"] = [*env, {"name": "FILE", "value": "/secret/token"}]
    pod = {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}
    ref = await world.submit(world.job("secret", program, container=container, pod=pod))

    line = await world.line(ref, "secret-master-0", "fast")
    assert files_with(tmp_path, CANARY) == []
    os.kill(supervisor_of(tmp_path / "root", ref), signal.SIGKILL)
    await world.observe(ref, has_ended)

    assert line.text == f"1 {len(CANARY)} fast None"
    assert files_with(tmp_path, CANARY) == []
    assert files_with(Path("/dev/shm"), CANARY) == []  # noqa: S108 - secret volumes are there


async def test_the_submitters_environment_is_not_inherited(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the replicas nor the supervisor have the submitting process's variables."""
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "sqlite://")
    program = """
        import os, pathlib
        parent = pathlib.Path(f"/proc/{os.getppid()}/environ").read_bytes()
        print("AIRFLOW" in str(dict(os.environ)), b"AIRFLOW" in parent)
    """

    ref, _ = await world.run(world.job("clean", program))

    assert await world.text(ref, "clean-master-0") == ["False False"]


async def test_a_device_can_be_ignored_loudly(machine: Callable[..., World]) -> None:
    """The job runs on the CPU, and one event says so."""
    world = machine(gpus="ignore")

    ref, seen = await world.run(
        world.job("gpu", "import os; print('[' + os.environ['CUDA_VISIBLE_DEVICES'] + ']')", container=gpus(1))
    )

    assert await world.text(ref, "gpu-master-0") == ["[]"]
    (message,) = [event["message"] for event in seen[-1].events if "ignored" in event["message"]]
    assert message == "GPUs (1 in all): ignored ([ptjob] local_gpus = ignore), the job runs on the CPU"


async def test_each_replica_sees_only_its_own_devices(machine: Callable[..., World]) -> None:
    """The devices are disjoint, as many as requested, and those that the submitting process may use."""
    world = machine(gpus=4, environment=environment() | {"CUDA_VISIBLE_DEVICES": "4,5,6,7"})
    program = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"

    job = world.job("gpus", f"{program}\n{held()}", program, **{**STATE, "container": STATE["container"] | gpus(2)})
    ref = await world.submit(job)
    second = (await world.line(ref, "gpus-worker-0", ",")).text.split(",")
    world.release()  # only now: the workers are stopped when the master has ended
    first = (await world.text(ref, "gpus-master-0"))[0].split(",")
    assert sorted([*first, *second]) == ["4", "5", "6", "7"]


async def test_a_job_waits_for_devices_that_others_have(machine: Callable[..., World]) -> None:
    """It is pending as unschedulable, with the reason, and runs when that job has ended; two back-ends share them."""
    world, other = machine(gpus=2), machine(gpus=2)
    holder = await world.submit(world.job("holder", SLEEP, container=gpus(1)))
    await world.observe(holder, is_running)

    waiting = await other.submit(other.job("waiting", "print('ran')", container=gpus(1)))
    seen = await other.observe(waiting, lambda one: any(pod["status"]["conditions"] for pod in one.pods))
    await asyncio.sleep(0.3)
    still = await other.backend.get("PyTorchJob", "default", "waiting")
    await world.backend.delete(holder)
    end = await other.observe(waiting, has_ended)

    (reason,) = seen[-1].pods[0]["status"]["conditions"]
    assert reason["reason"] == "Unschedulable"
    assert reason["message"].startswith("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")
    assert not condition(still, "Running")
    assert condition(end[-1].job, "Succeeded")


async def test_an_image_is_stood_in_for_by_its_context(machine: Callable[..., World], tmp_path: Path) -> None:
    """ENTRYPOINT, CMD, WORKDIR, ENV and COPY apply; a tag need not be configured; written files stay in the pod."""
    context = tmp_path / "context"
    (context / "src").mkdir(parents=True)
    (context / "src/train.py").write_text(
        "import os, sys, pathlib, helper\n"
        "print(sys.argv[1:], os.environ['MODE'], helper.NAME, pathlib.Path('data.txt').read_text())\n"
        "pathlib.Path('made.txt').write_text('x')\n"
    )
    (context / "src/helper.py").write_text("NAME = 'helper'\n")
    (context / "data.txt").write_text("data")
    (context / "Dockerfile").write_text(
        "FROM python:3.11-slim\nENV MODE=fast\nWORKDIR /app\nRUN pip install torch\n"
        'COPY src/ data.txt ./\nENTRYPOINT ["python", "/app/train.py"]\nCMD ["--epochs", "1"]\nUSER 1000\n'
    )
    world = machine(images={"registry:5000/team/train": context})
    world.image = "registry:5000/team/train:2026"
    manifest = world.job("image", [])

    ref, seen = await world.run(manifest)
    args, _ = await world.run(world.job("args", [], container={"args": ["--epochs", "$(RANK)"]}))

    assert await world.text(ref, "image-master-0") == ["['--epochs', '1'] fast helper data"]
    assert await world.text(args, "args-master-0") == ["['--epochs', '0'] fast helper data"]
    assert sorted(path.name for path in context.rglob("*.txt")) == ["data.txt"]
    assert any("not applied: RUN, USER" in event["message"] for event in seen[-1].events)


async def test_the_first_failure_ends_the_job_whatever_its_policies(world: World) -> None:
    """Nothing is restarted and nothing runs on; one sentence names the policies that do not apply."""
    manifest = world.job(
        "once", SLEEP, "raise SystemExit(3)", policy="OnFailure", backoffLimit=4, cleanPodPolicy="None"
    )

    ref, seen = await world.run(manifest)
    await world.gone(ref)
    after = await world.observe(ref, lambda one: all(pod["status"]["phase"] == "Failed" for pod in one.pods))

    assert (
        condition(seen[-1].job, "Failed")["message"] == "PyTorchJob once is failed because 1 Worker replica(s) failed."
    )
    assert [end["exitCode"] for end in terminations(after, "once-worker-0")] == [3]
    assert terminations(after, "once-master-0")[0]["finishedAt"] > terminations(after, "once-worker-0")[0]["finishedAt"]
    assert processes_of(ref) == []
    (policies,) = [each["message"] for each in seen[-1].events if "restartPolicy" in each["message"]]
    assert policies.startswith("restartPolicy, backoffLimit, cleanPodPolicy: not applied on this machine: nothing is")


async def test_text_without_an_end_of_line_is_in_the_log_within_a_second(world: World) -> None:
    """As a progress bar is; its pieces join to the line that it becomes."""
    bar = f"print('\\r 10%', end='', flush=True)\n{held()}print('\\r100%')\nprint('end')"
    ref = await world.submit(world.job("bar", bar, **STATE))

    begun = await world.line(ref, "bar-master-0", "10%")
    world.release()
    whole = await world.lines(ref, "bar-master-0")

    assert (begun.text, begun.continues) == ("\r 10%", True)
    assert [(line.text, line.continues) for line in whole] == [("\r 10%", True), ("\r100%", False), ("end", False)]
    assert await world.lines(ref, "bar-master-0", since=whole[0].cursor) == whole[1:]


async def test_programs_beside_the_interpreter_are_found_after_the_shims(
    machine: Callable[..., World], tmp_path: Path
) -> None:
    """`accelerate`, `tensorboard` and the like are installed there; `python` is still the job's."""
    folder = tmp_path / "venv/bin"
    folder.mkdir(parents=True)
    (folder / "python").symlink_to(sys.executable)
    for name, text in (("accelerate", "echo accelerated"), ("torchrun", "echo not the shim")):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    world = machine(python=str(folder / "python"))
    commands = {"plain": ["accelerate", "launch"], "shell": ["sh", "-c", "accelerate; command -v torchrun"]}

    refs = [(await world.run(world.job(name, command)))[0] for name, command in commands.items()]

    plain, shell = [await world.text(ref, f"{ref.name}-master-0") for ref in refs]
    assert plain == ["accelerated"]
    assert shell[0] == "accelerated"
    assert "/run/" in shell[1]


async def test_a_supervisor_that_cannot_start_leaves_no_job(machine: Callable[..., World], tmp_path: Path) -> None:
    """The error says that a retry may help."""
    world = machine(environment={"PYTHONHOME": "/nowhere"})

    with pytest.raises(ClusterUnavailable, match="default/none: it could not be started"):
        await world.submit(world.job("none", "pass"))

    assert list((tmp_path / "root/jobs/default").iterdir()) == []


async def test_a_config_map_is_mounted_as_files(machine: Callable[..., World]) -> None:
    """All of its keys, or the requested ones under the requested names."""
    world = machine(config_maps={"m": {"a.yaml": "one", "b.yaml": "two"}})
    volumes = [
        {"name": "all", "configMap": {"name": "m"}},
        {"name": "some", "configMap": {"name": "m", "items": [{"key": "b.yaml", "path": "conf/c.yaml"}]}},
        {"name": "none", "configMap": {"name": "n", "optional": True}},
    ]
    mounts = [{"name": volume["name"], "mountPath": f"/{volume['name']}"} for volume in volumes]
    mounts.append({"name": "all", "mountPath": "/file", "subPath": "a.yaml"})
    script = "cat /all/a.yaml /all/b.yaml /some/conf/c.yaml /file; ls /none | wc -l"

    ref, _ = await world.run(
        world.job("files", ["sh", "-c", script], container={"volumeMounts": mounts}, pod={"volumes": volumes})
    )

    assert await world.text(ref, "files-master-0") == ["onetwotwoone0"]


async def test_five_jobs_at_once(world: World) -> None:
    """All succeed, each with a port of its own: none ends, and returns its port, before the last one has its port."""
    program = f"import os; print(os.environ['MASTER_PORT'])\n{held()}"
    jobs = [world.job(f"many-{number}", program, **STATE) for number in range(5)]
    refs = await asyncio.gather(*(world.submit(job) for job in jobs))
    await asyncio.gather(*(world.observe(ref, is_running) for ref in refs))

    world.release()
    seen = await asyncio.gather(*(world.observe(ref, has_ended) for ref in refs))

    ports = [(await world.text(ref, f"{ref.name}-master-0"))[0] for ref in refs]
    assert all(condition(each[-1].job, "Succeeded") for each in seen)
    assert len(set(ports)) == 5


def gpus(count: int) -> dict[str, Any]:
    """Return the part of a container that requests devices."""
    return {"resources": {"limits": {"nvidia.com/gpu": count}}}


async def until(condition_holds: Callable[[], bool]) -> None:
    """Wait until the condition holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition_holds():  # noqa: ASYNC110 - other processes meet the condition
            await asyncio.sleep(0.05)


async def test_the_outputs_of_a_job_that_is_gone_are_dated_by_its_start(world: World) -> None:
    """Its listing from before the start went with it, and a job that has its name has another."""
    when = datetime.now(UTC)
    ref = await world.submit(world.job("gone", "import pathlib; pathlib.Path('/state/m').write_text('x')", **STATE))
    await world.observe(ref, has_ended)
    await world.backend.delete(ref)
    await world.gone(ref)
    await world.submit(world.job("gone", SLEEP, **STATE))
    outputs = ResolvedOutputs(
        model=ResolvedOutput(uri="pvc://state/m", claim="state", path="m", container_path="/state/m")
    )

    found = [
        (await world.backend.inspect_outputs(ref, outputs, since=since)).model for since in (when, datetime.now(UTC))
    ]

    assert [facts and facts.is_stale for facts in found] == [False, True]


TRAINS = """
    import os, pathlib, sys, zipfile
    print("from", os.environ.get("PTJOB_RESUME_FROM"))
    folder = pathlib.Path(os.environ["PTJOB_CHECKPOINT_DIR"])
    folder.mkdir(exist_ok=True)
    for step in range(1, 8):
        print(f"step {step}/1000 loss: 0.5", flush=True)
        if step == 5:
            with zipfile.ZipFile(folder / f"step-{step}.pt", "w") as file:
                file.writestr("archive/data.pkl", b".")
    sys.exit(3)
"""


async def test_a_program_that_does_not_resume_ends_the_retries(world: World, tmp_path: Path) -> None:
    """Each attempt makes seven steps, saves after the fifth, and fails."""
    store = MemoryStore()
    (tmp_path / "root/claims/default/state").mkdir(parents=True)
    fields = {
        "volumes": ["state:/state"],
        "checkpoints": "/state/ckpt",
        "workers": 1,
        "command": ["python", "-c", textwrap.dedent(TRAINS)],
    }
    job = TrainingJob.parse(name="trains", namespace="default", image=world.image, **fields)
    causes, said, begun = [], [], []
    for _ in range(3):
        sink = ListSink()
        session = Session(
            backend=world.backend,
            owner=OWNER,
            store=store,
            sink=sink,
            on_finish_action=OnFinishAction.KEEP_JOB,
            api_error_timeout=60.0,
            tell=lambda _: None,
            how_to_follow=FollowOptions(state=TrainingState()),
        )
        async with asyncio.timeout(PATIENCE):
            submission, outcome = await session.until_end(job)
            world.refs.append(submission.ref)
            with pytest.raises(JobFailed) as error:
                await session.finish(submission.ref, outcome, deliver=dict)
        snapshot = await look(world.backend, "default", submission.ref.name)
        resumed = (outcome.result or {})["resumed"]
        assert resumed == snapshot.to_dict()["resumed"]
        causes.append(error.value.diagnosis.cause)
        said.append(re.sub(r" \(.*?\)", "", resumed or ""))
        begun.append(sink.lines[0].rpartition("/")[2])

    assert causes == [Cause.EXIT_CODE, Cause.EXIT_CODE, Cause.NO_PROGRESS]
    assert begun == ["from None", "step-5.pt", "step-5.pt"]
    anew = "began at step 0 although a checkpoint of step 5 was there: the program does not resume"
    assert said == ["", f"attempt 2 {anew}", f"attempt 3 {anew}"]
