"""Run jobs that fail on the real cluster and record their observations as stories in `tests/data`.

    PYTHONPATH=tests:. python -m kubernetes_backend.recording pod-oomkilled pod-segfault
    PYTHONPATH=tests:. python -m kubernetes_backend.recording          # all of them, about 15 minutes

It does not use the provider's recorder: it watches with kubectl and writes down each change. `tests/story.py` reads the
result.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cluster import trainer
from cluster.binaries import TRAINER, TRAINING_OPERATOR
from cluster.boot import Cluster
from cluster.layout import Layout
from cluster.shell import Progress, bare_environment
from cluster.tenants import namespace_in
from kubernetes_backend.failures import FAILURES
from kubernetes_backend.impersonal import impersonal
from kubernetes_backend.story_file import write
from kubernetes_backend.world import World
from ptjob_provider.core.kubernetes.client import paths

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from cluster.kubectl import Kubectl
    from kubernetes_backend.failure import Failure

SIDE_BY_SIDE = 4
"""Number of stories that a machine with two cores records at once."""
ONE_LOOK = 1.0
"""Changes within this many seconds form one look, unless a pod is deleted or is being deleted."""
WATCHED = (
    "{jobs}?watch=true",
    "/api/v1/namespaces/{namespace}/pods?watch=true",
    "/api/v1/namespaces/{namespace}/events?watch=true",
)


@dataclass(kw_only=True)
class Looks:
    """The observed worlds, each with its time."""

    world: World
    looks: list[dict[str, Any]] = field(default_factory=list)

    def add(self) -> None:
        """Add the present world; it replaces the last look if that is recent and none of its pods has gone."""
        began = now = datetime.now(UTC)
        if self.looks and self._is_same_look(now):
            began = self.looks.pop()["began"]
        if self.world.job is None:
            return
        look = {"began": began, "at": now, "job": self.world.job, "pods": list(self.world.pods.values())}
        self.looks.append({**look, "deleted": self.world.is_deleted, "events": list(self.world.events.values())})

    def _is_same_look(self, now: datetime) -> bool:
        last = self.looks[-1]
        is_recent = (now - last["began"]).total_seconds() < ONE_LOOK
        return is_recent and _there(last["pods"]) <= _there(self.world.pods.values()) and not self.world.is_deleted


def _there(pods: Iterable[dict[str, Any]]) -> set[tuple[str, ...]]:
    """Return the pods; for terminating ones, their phase as well."""
    metas = [(pod["metadata"], pod["status"].get("phase", "")) for pod in pods]
    return {(meta["uid"], phase) if "deletionTimestamp" in meta else (meta["uid"],) for meta, phase in metas}


async def record(cluster: Cluster, failure: Failure) -> dict[str, Any]:
    """Run one failing job in a namespace of its own, and return its story.

    Raises:
        TimeoutError: the job did not reach the expected end.
    """
    async with _namespace(cluster) as namespace:
        looks = Looks(world=World())
        changes: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        jobs = paths.jobs(failure.kind.KIND, namespace)
        async with contextlib.AsyncExitStack() as stack:
            for path in WATCHED:
                await stack.enter_async_context(
                    _watch(cluster.kubectl, path.format(namespace=namespace, jobs=jobs), changes)
                )
            try:
                await asyncio.to_thread(_create, cluster.kubectl, failure, namespace)
                async with asyncio.timeout(failure.timeout):
                    await _follow(cluster.kubectl, failure, namespace, looks, changes)
            finally:
                if failure.undo:
                    await asyncio.to_thread(failure.undo, cluster.kubectl, namespace)
    recorded = await asyncio.to_thread(_versions, cluster.kubectl, failure.kind.KIND)
    seen = looks.looks[-1:] if failure.only_the_end else looks.looks
    story = impersonal(seen, namespace=namespace)
    return {"recorded": recorded, **({"limits": dict(failure.limits)} if failure.limits else {}), **story}


async def _follow(
    kubectl: Kubectl, failure: Failure, namespace: str, looks: Looks, changes: asyncio.Queue[dict[str, Any]]
) -> None:
    acts, over_at = list(failure.acts), None
    while over_at is None or looks.world.seconds < over_at:
        with contextlib.suppress(TimeoutError):
            change = await asyncio.wait_for(changes.get(), timeout=0.2)
            if looks.world.take(change):
                looks.add()
        for act in [one for one in acts if one.when(looks.world)]:
            acts.remove(act)
            await asyncio.to_thread(act.do, kubectl, namespace)
        if over_at is None and not acts and failure.until(looks.world):
            over_at = looks.world.seconds + failure.lasts
    looks.add()


def _create(kubectl: Kubectl, failure: Failure, namespace: str) -> None:
    failure.prepare(kubectl, namespace)
    kubectl("create", "--filename", "-", stdin=json.dumps(failure.manifest(namespace)))


@contextlib.asynccontextmanager
async def _namespace(cluster: Cluster) -> AsyncIterator[str]:
    with contextlib.ExitStack() as stack:
        yield await asyncio.to_thread(stack.enter_context, namespace_in(cluster))


@contextlib.asynccontextmanager
async def _watch(kubectl: Kubectl, path: str, changes: asyncio.Queue[dict[str, Any]]) -> AsyncIterator[None]:
    env = bare_environment(kubectl.kubeconfig.parent, KUBECONFIG=str(kubectl.kubeconfig))
    process = await asyncio.create_subprocess_exec(
        kubectl.program, "get", "--raw", path, stdout=asyncio.subprocess.PIPE, env=env, limit=2**22
    )
    reader = asyncio.create_task(_read(process, changes))
    try:
        yield
    finally:
        process.terminate()
        await process.wait()
        await reader


async def _read(process: asyncio.subprocess.Process, changes: asyncio.Queue[dict[str, Any]]) -> None:
    assert process.stdout is not None
    async for line in process.stdout:
        changes.put_nowait(json.loads(line))


OPERATORS = {
    "PyTorchJob": {"training-operator": (TRAINING_OPERATOR, "kubeflow/training-operator")},
    "TrainJob": {"trainer": (TRAINER, "kubeflow/trainer/v2"), "jobset": (TRAINER, "sigs.k8s.io/jobset")},
}
"""The operators of each kind, with the folder that pins their version, and their Go module."""


def _versions(kubectl: Kubectl, kind: str) -> dict[str, str]:
    server = json.loads(kubectl("version", "--output", "json"))["serverVersion"]["gitVersion"]
    found = {"kubernetes": server}
    for operator, (family, module) in OPERATORS[kind].items():
        pinned = re.search(rf"{module} (v\S+)", (family.folder / "go.mod").read_text())
        assert pinned is not None
        found[operator] = pinned[1]
    return found


async def record_all(cluster: Cluster, names: list[str], tell: Callable[[str], None]) -> int:
    """Record these stories, several at a time; return how many failed."""
    free, crowds = asyncio.Semaphore(SIDE_BY_SIDE), defaultdict(asyncio.Lock)

    async def one(name: str) -> bool:
        failure = FAILURES[name]
        async with crowds[failure.crowd] if failure.crowd else contextlib.nullcontext(), free:
            tell(f"recording {name}")
            try:
                write(name, failure.about, await record(cluster, failure))
            except Exception as error:  # noqa: BLE001 - one story that cannot be recorded does not stop the others
                tell(f"{name} could not be recorded: {type(error).__name__}: {error}")
                return False
            tell(f"recorded {name}")
            return True

    done = await asyncio.gather(*(one(name) for name in names))
    return done.count(False)


def main() -> int:
    """Record the stories that the command line names, or all."""
    names, cluster = sys.argv[1:] or list(FAILURES), Cluster.of(Layout.of(os.environ))
    if any(FAILURES[name].kind.KIND == "TrainJob" for name in names):
        trainer.install(cluster)
    return asyncio.run(record_all(cluster, names, Progress()))


if __name__ == "__main__":
    sys.exit(main())
