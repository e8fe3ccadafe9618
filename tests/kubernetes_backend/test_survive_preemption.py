"""Tests of the programs in "Survive preemption" on the cluster: evicted in the middle, they train every step once."""

from __future__ import annotations

import json
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from cluster.shell import ClusterFailed, until
from cluster_world import PATIENCE, Tenant
from guide_pages import DOCS, Reader
from kubernetes_backend.endings import evict
from kubernetes_backend.terminal import Terminal, person
from rbac import rules

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from cluster.boot import Cluster

ROOT = DOCS.parent
POD = "survives-master-0"
STEPS = {"plain.py": 4_000, "hugging_face.py": 1_500, "lightning_module.py": 1_500}
"""Fewer than on the page, and still seconds: an eviction takes one."""

STEP = re.compile(r"^step (\d+)/", re.MULTILINE)
GIVEN = re.compile(r"it gets pvc://state/ckpt/(\S+) as PTJOB_RESUME_FROM")
LIBRARIES = ("transformers", "accelerate", "lightning")


@pytest.fixture
def terminal(cluster: Cluster, namespace: str) -> Terminal:
    """Return the terminal of a person who has the documented Role, and a claim for a program of the page."""
    Tenant(cluster, namespace).claim("state")
    return person(cluster, namespace, rules())


def on_claim(terminal: Terminal) -> Path:
    """Return the folder of this machine that the pods have as /state."""
    return terminal.cluster.volume("state", namespace=terminal.namespace)


def have_libraries(terminal: Terminal) -> None:
    """Put the libraries beside the program; the image has PyTorch and NumPy."""
    script = ROOT / "scripts/environment.sh"
    subprocess.run([script, "beside-torch", "3.13", on_claim(terminal) / "libraries", *LIBRARIES], check=True)


def ran_evicted(terminal: Terminal, program: str, image: str) -> Result:
    """Run one of the page's programs in a pod that is evicted once it has trained some steps."""
    page = (DOCS / "how-to/survive-preemption.md").read_text()
    steps = STEPS[program]
    shorter = page.replace("10_001", str(steps + 1)).replace("10_000", str(steps)).replace("/10000", f"/{steps}")
    Reader(on_claim(terminal)).save(shorter)
    words = ["run", "--name", "survives", "--image", image, "--data", "state:/state", "-o", "json"]
    words += ["--checkpoints", "pvc://state/ckpt", "--env", "PYTHONPATH=/state/libraries", "--env", "HF_HUB_OFFLINE=1"]
    words += ["--env", "OMP_NUM_THREADS=1"]
    words += ["--max-preemptions", "1", "--timeout", f"{PATIENCE:.0f}s", "--", "python", "-W", "ignore"]
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(terminal.ptjob, *words, f"/state/{program}")
        until("some steps", lambda: running.done() or steps_so_far(terminal) > 20, timeout=PATIENCE)
        if not running.done():
            evict(terminal.cluster.kubectl, terminal.namespace, POD)
        result = running.result()
    assert result.exit_code == 0, result.output[-5000:]
    told = json.loads(result.stdout)
    assert ([each["cause"] for each in told["preemptions"]], told["attempt"]) == (["evicted"], 2), result.stderr[-5000:]
    return result


def steps_so_far(terminal: Terminal) -> int:
    try:
        return terminal.cluster.kubectl("logs", POD, "--namespace", terminal.namespace).count("loss")
    except ClusterFailed:
        return 0


def all_steps(program: str) -> list[int]:
    return [*range(1, STEPS[program] + 1)]


def trained(result: Result) -> list[int]:
    """Return the steps in the log of both attempts."""
    return [int(step) for step in STEP.findall(result.stderr)]


def given(result: Result) -> str:
    """Return which checkpoint the second attempt was given."""
    (name,) = GIVEN.findall(result.stderr)
    return str(name)


def test_plain_pytorch_trains_every_step_once_although_its_pod_is_evicted(
    terminal: Terminal, digits_image: str
) -> None:
    result = ran_evicted(terminal, "plain.py", digits_image)

    assert trained(result) == all_steps("plain.py")
    assert re.fullmatch(r"step-\d+\.pt", given(result))


def test_lightning_trains_every_step_once_although_its_pod_is_evicted(terminal: Terminal, digits_image: str) -> None:
    have_libraries(terminal)

    result = ran_evicted(terminal, "lightning_module.py", digits_image)

    assert (given(result), trained(result)) == ("on_exception.ckpt", all_steps("lightning_module.py"))


def test_hugging_faces_trainer_trains_every_step_once_although_its_pod_is_evicted(
    terminal: Terminal, digits_image: str
) -> None:
    """Its log names no steps; its own record of them goes from checkpoint to checkpoint."""
    have_libraries(terminal)

    result = ran_evicted(terminal, "hugging_face.py", digits_image)

    last = on_claim(terminal) / "ckpt/checkpoint-1500/trainer_state.json"
    assert [each["step"] for each in json.loads(last.read_text())["log_history"] if "loss" in each] == all_steps(
        "hugging_face.py"
    )
    assert (on_claim(terminal) / "ckpt" / given(result)).is_dir()
