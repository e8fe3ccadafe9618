"""A board on a cluster with the old PyTorch operator, which labels pods otherwise; a stand-in for its API server."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from ptjob_provider.core.identity import MANAGED_LABEL
from ptjob_provider.core.kubernetes import ClusterConfig
from ptjob_provider.core.kubernetes.informer import WatchScope
from ptjob_provider.core.kubernetes.informer.informer import JobInformer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

COMPLETE = {"metadata": {"resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}}}


class StandInWatches:
    """Says of each watch that nothing is there, then what it is told to; keeps by which labels it was asked."""

    def __init__(self) -> None:
        self.streams_lists = True
        self.asked: list[tuple[str, str]] = []
        self.news: dict[str, asyncio.Queue[dict[str, Any]]] = {}

    @asynccontextmanager
    async def stream(self, path: str, **query: Any) -> AsyncIterator[AsyncGenerator[bytes, None]]:
        """Open a watch."""
        plural = path.rpartition("/")[2]
        self.asked.append((plural, query["labelSelector"]))
        news = self.news[plural] = asyncio.Queue()

        async def events() -> AsyncGenerator[bytes, None]:
            yield json.dumps({"type": "BOOKMARK", "object": COMPLETE}).encode() + b"\n"
            while True:
                yield json.dumps({"type": "ADDED", "object": await news.get()}).encode() + b"\n"

        yield events()

    async def until(self, times: int, plural: str = "pods") -> None:
        """Return when so many watches of it have been opened."""
        async with asyncio.timeout(30):
            while sum(each == plural for each, _ in self.asked) < times:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0)


def job(number: int, **policy: Any) -> dict[str, Any]:
    """Return a suspended job of ours; of the old operator, if its policy is at the top of its spec."""
    meta = {"name": f"j{number}", "namespace": "team", "uid": f"u{number}", "resourceVersion": str(number + 10)}
    labels = {MANAGED_LABEL: "true"}
    return {
        "kind": "PyTorchJob",
        "apiVersion": "kubeflow.org/v1",
        "metadata": {**meta, "labels": labels},
        "spec": {"pytorchReplicaSpecs": {}, **policy},
        "status": {},
    }


async def test_the_first_job_of_the_old_operator_has_the_pods_watched_by_their_old_label() -> None:
    """Also if the board was open before it came; a second one changes nothing."""
    server = StandInWatches()
    board = JobInformer(WatchScope(config=ClusterConfig(), kind="PyTorchJob", namespace="team"))
    board._client = cast("Any", server)
    watches = [asyncio.create_task(board._watch_jobs()), asyncio.create_task(board._watch_pods())]
    await server.until(1)

    server.news["pytorchjobs"].put_nowait(job(1, runPolicy={"cleanPodPolicy": "None"}))
    server.news["pytorchjobs"].put_nowait(job(2, cleanPodPolicy="None"))
    await server.until(2)
    server.news["pytorchjobs"].put_nowait(job(3, cleanPodPolicy="None"))
    for _ in range(100):
        await asyncio.sleep(0)

    selectors = [selector.partition("=")[0].partition(",")[0] for plural, selector in server.asked if plural == "pods"]
    assert selectors == ["training.kubeflow.org/job-name", "pytorch-job-name"]
    assert not any(each.done() for each in watches)
    for each in watches:
        each.cancel()
    await asyncio.gather(*watches, return_exceptions=True)
