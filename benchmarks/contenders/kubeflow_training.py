"""Wait for PyTorchJobs with the kubeflow SDK: `TrainingClient.wait_for_job_conditions`, one thread per job.

The call is synchronous: waiting for many jobs takes a thread or a process for each; threads are cheaper.
"""

from __future__ import annotations

import asyncio
import threading

from kubeflow.training import TrainingClient

from benchmarks.contender import Assignment, Ears, serve

_LONGER_THAN_ANY_BENCHMARK = 24 * 3600


async def threads(assignment: Assignment, ears: Ears) -> None:
    """Wait in threads that share one client, with the SDK's default polling interval."""
    client = TrainingClient(config_file=assignment.kubeconfig, namespace=assignment.namespace, job_kind="PyTorchJob")

    def wait(name: str) -> None:
        client.wait_for_job_conditions(name, wait_timeout=_LONGER_THAN_ANY_BENCHMARK)
        ears.ended(name)

    for name in assignment.names:
        threading.Thread(target=wait, args=(name,), daemon=True).start()
        await asyncio.sleep(0)
    await asyncio.Event().wait()


def main() -> None:
    """Serve as this contender."""
    serve(threads)
