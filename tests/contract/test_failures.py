"""Tests of failing jobs, and of what observations contain."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from ptjob_provider.core.local.backend import LocalBackend
from worlds import STATE, condition, has_ended, held, terminations

if TYPE_CHECKING:
    from ptjob_provider.core.backend import Observation
    from worlds import World

SLEEP = "import time; time.sleep(600)"


async def test_an_exit_code_and_the_end_of_the_log_are_seen(world: World) -> None:
    """The failing replica's status has its code and its last lines."""
    program = "import sys; print('before', file=sys.stderr); raise ValueError('no such class')"
    _, seen = await world.run(world.job("code", program))

    ended = terminations(seen, "code-master-0")[-1]
    assert (ended["exitCode"], ended["reason"]) == (1, "Error")
    assert ended["message"].startswith("before\nTraceback")
    assert ended["message"].endswith("ValueError: no such class\n")
    assert (
        condition(seen[-1].job, "Failed")["message"] == "PyTorchJob code is failed because 1 Master replica(s) failed."
    )


async def test_a_death_by_signal_is_reported_as_one(world: World) -> None:
    """128 plus the signal's number, as with the kubelet."""
    _, seen = await world.run(world.job("killed", "import ctypes; ctypes.string_at(0)"))

    ended = terminations(seen, "killed-master-0")[-1]
    assert (ended["exitCode"], ended["reason"]) == (139, "Error")


async def test_a_missing_program_is_reported_as_one(world: World) -> None:
    """The container ends as StartError with code 128, and the runtime's message names what is missing."""
    _, seen = await world.run(world.job("missing", ["nosuch", "--epochs", "3"]))

    ended = terminations(seen, "missing-master-0")[-1]
    assert (ended["exitCode"], ended["reason"]) == (128, "StartError")
    assert 'exec: "nosuch": executable file not found in $PATH' in ended["message"]


async def test_a_job_past_its_deadline_has_failed(world: World) -> None:
    """The condition gives the reason, and the policy decides which pods are deleted.

    The operator on a cluster checks the time only when something happens to the job (kubeflow/trainer#3358), so a
    worker ends there. The local back-end needs no such event.
    """
    worker = {} if isinstance(world.backend, LocalBackend) else {"worker": "import time; time.sleep(2)"}
    manifest = world.job("late", SLEEP, **worker, activeDeadlineSeconds=1, cleanPodPolicy="Running")

    ref, seen = await world.run(manifest)

    failed = condition(seen[-1].job, "Failed")
    assert failed["message"] == "Job late has failed because it was active longer than specified deadline"
    await world.gone(ref)


async def test_without_a_master_all_workers_have_to_succeed(world: World) -> None:
    """One that is still running keeps the job running."""
    program = f"import os\nif os.environ['HOSTNAME'].endswith('1'):\n{textwrap.indent(held(), '    ')}"
    ref = await world.submit(world.job("workers", worker=program, workers=2, **STATE))

    half = await world.observe(ref, lambda one: {p["status"]["phase"] for p in one.pods} == {"Succeeded", "Running"})
    half += await world.observe(ref, lambda one: condition(one.job, "Running") is not None)
    world.release()
    seen = await world.observe(ref, has_ended)

    assert {p["status"]["phase"] for p in half[-1].pods} == {"Succeeded", "Running"}
    assert (
        condition(seen[-1].job, "Succeeded")["message"] == f"PyTorchJob {ref.namespace}/workers successfully completed."
    )


async def test_an_init_container_runs_first(world: World) -> None:
    """The others start once it has succeeded."""
    script = "until [ -e /state/go ]; do sleep 0.05; done; date +%s.%N > /shared/done"
    mounts = [{"name": "shared", "mountPath": "/shared"}, *STATE["container"]["volumeMounts"]]
    init = {"name": "wait", "image": world.image, "command": ["sh", "-c", script], "volumeMounts": mounts}
    pod = {"initContainers": [init], "volumes": [{"name": "shared", "emptyDir": {}}, *STATE["pod"]["volumes"]]}
    ref = await world.submit(
        world.job("init", ["sh", "-c", "cat /shared/done; echo ready"], pod=pod, container={"volumeMounts": mounts})
    )

    def phases(one: Observation) -> list[str]:
        return [pod["status"]["phase"] for pod in one.pods if "initContainerStatuses" in pod["status"]]

    seen = await world.observe(ref, lambda one: bool(phases(one)))
    world.release()
    seen += await world.observe(ref, has_ended)

    assert (await world.text(ref, "init-master-0"))[-1] == "ready"
    assert condition(seen[-1].job, "Succeeded")
    assert next(phase for one in seen for phase in phases(one)) == "Pending"
