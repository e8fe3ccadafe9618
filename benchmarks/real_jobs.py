"""Jobs whose rank 0 really runs, as a container on the cluster's node, and prints lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import many_jobs, many_pods
from benchmarks.polling import until
from ptjob_provider.core.identity import Owner
from ptjob_provider.core.kinds import PYTORCHJOB
from ptjob_provider.core.run.submit import Submission
from ptjob_provider.core.spec import TrainingJob

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.apiserver import ApiServer
    from ptjob_provider.core.identity import Manifest

IMAGE = "docker.io/library/alpine:3.10"
TEXT = "line %07d of a log of a training program, epoch 3 step 1000 loss 0.123"
"""Line of the log that every contender transfers; 75 characters."""

FIRST = 1_000_000
_PATIENCE = 120.0


def all_at_once(lines: int) -> str:
    """Return a program that prints so many lines as fast as it can, and then sleeps."""
    return f"{_printed(FIRST, FIRST + lines - 1)}; echo all printed; sleep 36000"


def steadily(lines_a_second: int) -> str:
    """Return a program that prints about so many lines per second without end."""
    if lines_a_second == 1:
        return f"while true; do {_printed(FIRST, FIRST)}; sleep 1; done"
    return f"while true; do {_printed(FIRST, FIRST + lines_a_second // 5 - 1)}; sleep 0.2; done"


async def start(server: ApiServer, namespace: str, programs: Sequence[str]) -> list[Submission]:
    """Start a job for each program; return once all of them run."""
    manifests = [_job(namespace, number, program) for number, program in enumerate(programs)]
    path = many_jobs.path(namespace)
    created = [await server.request("POST", path, body=manifest) for manifest in manifests]
    submissions = [Submission.of(job) for job in created]
    for each in submissions:
        await until(f"{each.rank0} to run", lambda pod=each.rank0: _runs(server, namespace, pod), patience=_PATIENCE)  # type: ignore[misc]
    return submissions


async def has_printed(server: ApiServer, namespace: str, pod: str) -> None:
    """Return once a program of `all_at_once` has printed everything."""
    await until(f"{pod} to print all", lambda: _says(server, namespace, pod, "all printed"), patience=_PATIENCE)


def _printed(first: int, last: int) -> str:
    before, after = TEXT.split("%07d")
    return f"seq {first} {last} | sed 's/.*/{before}&{after}/'"


def _job(namespace: str, number: int, program: str) -> Manifest:
    job = TrainingJob.parse(
        name=f"talks-{number}",
        namespace=namespace,
        image=IMAGE,
        image_pull_policy="Never",
        command=["sh", "-c", program],
        termination_grace_period_seconds=1,
    )
    ids = {"dag_id": "bench", "task_id": "talk", "run_id": "manual__2026", "map_index": str(number)}
    return PYTORCHJOB.render(job, owner=Owner(instance="benchmark", ids=ids, labels={}), attempt=1).manifest


async def _runs(server: ApiServer, namespace: str, pod: str) -> bool:
    pods = await server.request("GET", f"{many_pods.path(namespace)}?fieldSelector=metadata.name%3D{pod}")
    return any((each.get("status") or {}).get("phase") == "Running" for each in pods["items"])


async def _says(server: ApiServer, namespace: str, pod: str, word: str) -> bool:
    return word in await server.text(f"{many_pods.path(namespace, pod)}/log?tailLines=1")
