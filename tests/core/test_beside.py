"""A TensorBoard that had no node when it was made; the back-end is a stand-in that follows a script."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from fakes import ScriptedBackend
from ptjob_provider.core import kinds
from ptjob_provider.core.backend import Observation
from ptjob_provider.core.beside import watched
from ptjob_provider.core.identity import JobRef, Owner
from ptjob_provider.core.spec import TrainingJob
from ptjob_provider.core.tensorboard import TensorBoardPlan
from rows import each_row

pytestmark = pytest.mark.skips_waits

INSIDE, NODES = "http://digits-tensorboard.team.svc:6006/", "http://10.0.0.7:30131/"


def job(url: str, *, tensorboard: bool = True) -> dict[str, Any]:
    """Return the object of a job whose TensorBoard is reached there."""
    asked = TrainingJob.parse(
        name="digits", namespace="team", image="digits:1", tfevents="pvc://runs/tb", tensorboard=tensorboard
    )
    owner = Owner(instance="test", ids={}, labels={})
    found = kinds.DEFAULT.render(asked, owner=owner, attempt=1, exact_name=True).manifest
    found["metadata"]["uid"] = "uid-1"
    plan = TensorBoardPlan.of(found)
    if plan is not None:
        found["metadata"]["annotations"] |= plan.served_at(url).annotation
    return found


@each_row(
    ("found", "phase", "hands_off", "times"),
    [
        (job(INSIDE), "Running", False, 1),
        (job(INSIDE), "Running", True, 0),
        (job(INSIDE), "Pending", False, 0),
        (job(NODES), "Running", False, 0),
        (job("", tensorboard=False), "Running", False, 0),
        (None, "Running", False, 0),
    ],
)
async def test_a_node_is_asked_for_once_pods_run(
    found: dict[str, Any] | None, phase: str, times: int, *, hands_off: bool
) -> None:
    """Once, by whoever the job is for, and only where people have no address yet; all that is seen is passed on."""
    backend = ScriptedBackend()
    backend.worlds = [Observation(job=found, pods=({"status": {"phase": phase}},))] * 2
    ref = JobRef(kind="PyTorchJob", namespace="team", name="digits", uid="uid-1")

    async with contextlib.aclosing(watched(backend, ref, hands_off=hands_off)) as watch:
        seen = [await anext(watch), await anext(watch)]
        await asyncio.sleep(0)

    assert seen == backend.worlds
    assert backend.tensorboards_ensured == [ref] * times
