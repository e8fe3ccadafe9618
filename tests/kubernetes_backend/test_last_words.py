"""What another replica than rank 0 said when it died is in the task's log, also where the job goes on and succeeds."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from cluster.images import INIT_IMAGE
from cluster_world import PATIENCE, Tenant, config_of
from fakes import ListSink, MemoryStore
from ptjob_provider.core.identity import Owner
from ptjob_provider.core.kubernetes import KubernetesBackend
from ptjob_provider.core.run.follow import follow
from ptjob_provider.core.run.outcome import Outcome
from ptjob_provider.core.run.submit import ensure_submitted
from ptjob_provider.core.spec import TrainingJob
from worlds import World

if TYPE_CHECKING:
    from cluster.boot import Cluster

OWNER = Owner(instance="test", ids={"dag_id": "d", "task_id": "t", "run_id": "r", "map_index": "-1"}, labels={})
WAITS = "until [ -e /state/go ]; do sleep 0.2; done"
DIES_ONCE = "[ -e /state/died ] && exit 0; touch /state/died; echo step 7 >&2; echo the disk is full >&2; exit 3"
STATE: dict[str, Any] = {
    "container": {"volumeMounts": [{"name": "state", "mountPath": "/state"}]},
    "pod": {"volumes": [{"name": "state", "emptyDir": {}}]},
}


async def test_a_worker_that_dies_and_comes_back_is_heard(cluster: Cluster, namespace: str) -> None:
    """Once, with its last lines; the job succeeds, and nothing else would ever tell of it."""
    backend, sink = KubernetesBackend(config_of(cluster.layout.kubeconfig)), ListSink()
    claim = partial(cluster.volume, namespace=namespace)
    world = World(backend=backend, image=INIT_IMAGE, namespace=namespace, claim=claim)
    programs = (["sh", "-c", WAITS], ["sh", "-c", DIES_ONCE])
    manifest = Tenant(cluster, namespace).prepare(world.job("heard", *programs, policy="OnFailure", **STATE))
    submission = await ensure_submitted(backend, TrainingJob.parse(manifest=manifest), owner=OWNER, store=MemoryStore())

    async with asyncio.timeout(2 * PATIENCE):
        following = asyncio.create_task(follow(backend, submission, sink=sink))
        while not last_words(sink) and not following.done():  # noqa: ASYNC110 - the sink tells nobody
            await asyncio.sleep(0.1)
        release = partial(cluster.kubectl.let_end, submission.rank0, "touch", "/state/go", namespace=namespace)
        await asyncio.to_thread(release)
        conclusion = await following

    heard = last_words(sink)
    assert conclusion.outcome is Outcome.SUCCEEDED
    assert len(heard) == 1, sink.notices
    assert "-worker-0 exited with code 3; its last lines:" in heard[0]
    assert heard[0].endswith("step 7\n    the disk is full")


def last_words(sink: ListSink) -> list[str]:
    """Return what the log says of replicas that have died."""
    return [notice for notice in sink.notices if "its last lines" in notice]
