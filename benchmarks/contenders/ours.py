"""Wait with this package: with its trigger (`PyTorchJobTrigger.run()`, all in one event loop) or its core alone."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import aclosing
from datetime import UTC, datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any

from benchmarks.contender import Assignment, Ears, serve
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.kinds import PYTORCHJOB
from ptjob_provider.core.kubernetes import ClusterConfig, KubernetesBackend

if TYPE_CHECKING:
    from ptjob_provider.core.backend import Backend


async def triggers(assignment: Assignment, ears: Ears) -> None:
    """Run a trigger for each job, as Airflow's runner does, until all have fired."""
    submissions = enumerate(assignment.submissions)
    await asyncio.gather(*(_trigger(number, each, assignment, ears) for number, each in submissions))


async def _trigger(number: int, submission: dict[str, Any], assignment: Assignment, ears: Ears) -> None:
    from benchmarks.contenders.airflow_process import be_a_trigger  # noqa: PLC0415 - the core alone needs no Airflow
    from ptjob_provider.airflow.triggers import PyTorchJobTrigger  # noqa: PLC0415 - likewise

    await be_a_trigger(number)
    trigger = PyTorchJobTrigger(
        submission=submission,
        kubernetes_conn_id=None,
        config_file=assignment.kubeconfig,
        deferred_at=datetime.now(UTC).isoformat(),
    )
    async for _ in trigger.run():
        ears.ended(submission["ref"]["name"])
        break
    await trigger.cleanup()


async def core(assignment: Assignment, ears: Ears) -> None:
    """Watch each job with `Backend.watch`; all share one back-end, as triggers of one cluster share its client."""
    backend = KubernetesBackend(ClusterConfig(kube_config_path=assignment.kubeconfig))
    refs = [JobRef.from_dict(each["ref"]) for each in assignment.submissions]
    await asyncio.gather(*(_watched(backend, ref, ears) for ref in refs))


async def _watched(backend: Backend, ref: JobRef, ears: Ears) -> None:
    async with aclosing(backend.watch(ref)) as observations:
        async for observation in observations:
            if observation.job is None or PYTORCHJOB.read_status(observation.job).phase.is_terminal:
                ears.ended(ref.name)
                return
            del observation  # the follower, too, keeps no reference to the last observation while it waits


def main() -> None:
    """Serve as the contender on the command line."""
    if sys.argv[3] == "core":
        serve(core)
        return
    os.environ["AIRFLOW__PTJOB__BACKEND"] = "kubernetes"
    import_module("ptjob_provider.airflow.hooks")  # else the first trigger would import it
    from benchmarks.contenders import airflow_process  # noqa: PLC0415 - it loads Airflow

    airflow_process.log_as_a_triggerer_does()
    serve(triggers)
