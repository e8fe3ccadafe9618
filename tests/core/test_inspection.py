"""Tests of the life of a probe pod that need an API server whose clock differs, which a real one cannot be made to."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import pytest

from api_server_stand_in import stand_in_api_server
from ptjob_provider.core.errors import ClusterUnavailable, OutputsNotVerified
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.kubernetes import KubernetesBackend
from ptjob_provider.core.kubernetes.inspection import find_checkpoint
from ptjob_provider.core.kubernetes.probe import MARKER, ProbeOptions
from ptjob_provider.core.outputs.contract import ResolvedOutput, ResolvedOutputs
from recorded import recorded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from ptjob_provider.core.kubernetes.client.http import Client
    from ptjob_provider.core.outputs.checkpoints import Checkpoint

MODEL = ResolvedOutput(uri="pvc://runs/m.pt", claim="runs", path="m.pt", container_path="/data/m.pt")


def with_claim() -> dict[str, Any]:
    """Return a job that has ended and mounts a claim."""
    job = recorded("pytorchjob-succeeded")
    trainer = {"name": "pytorch", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/data"}]}
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "runs"}}]
    job["spec"]["pytorchReplicaSpecs"]["Master"]["template"] = {"spec": {"containers": [trainer], "volumes": volumes}}
    return job


@pytest.mark.parametrize(("ahead", "doubts"), [(0, [""]), (-90, ["", "-90 s after a pod was created"])])
async def test_a_node_with_another_time_is_asked_again_without_its_clock(ahead: int, doubts: list[str]) -> None:
    """Its answer would fail a training, or take another job's model for this one's."""
    job = with_claim()
    now = datetime.now(UTC).replace(microsecond=0)
    report = {"model": {"exists": True, "bytes": 1, "files": 1}, "clock": now.timestamp() + ahead}
    pod = {
        "metadata": {"name": "p", "creationTimestamp": now.isoformat()},
        "status": {"phase": "Succeeded", "containerStatuses": []},
        "spec": {"containers": [{"name": "probe"}]},
    }

    other = {"name": "digits-succeeded-master-0", "ownerReferences": [{"kind": "PyTorchJob", "uid": "another"}]}
    template = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]
    listed = {"metadata": other, "spec": {**template["spec"], "nodeName": "node-a"}}

    def answer(line: str) -> Any:
        path = line.split()[1]
        if "/pods?" in path:
            return 200, {"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": [listed]}
        if path.partition("?")[0].endswith("/log"):
            return 200, f"{MARKER}{json.dumps(report)}\n"
        if "/persistentvolumeclaims/" in path:
            return 200, {"spec": {"accessModes": ["ReadWriteMany"]}}
        if "/pods" in path:
            return 200, pod
        return 200, job

    async with stand_in_api_server() as server:
        server.answers = answer
        backend = KubernetesBackend(server.config())
        await backend.inspect_outputs(JobRef.of(job), ResolvedOutputs(model=MODEL), since=now)

    made = [body for line, body in zip(server.requests, server.bodies, strict=True) if line.startswith("POST")]
    (containers,) = zip(*(each["spec"]["containers"] for each in made), strict=True)
    asked = [json.loads(each["env"][1]["value"])["doubt"] for each in containers]
    assert len(asked) == len(doubts)
    assert all(doubt in found for doubt, found in zip(doubts, asked, strict=True))
    assert not any("affinity" in each["spec"] for each in made)  # the pod of the name is another job's


class StandInClient:
    """Stand-in for a client whose API server is away for the first requests for a log.

    Then it sends this report; for "" a byte now and then, without end, as a gateway may.
    """

    def __init__(self, *, away: int = 0, report: str = "") -> None:
        self.away = away
        self.report = report

    async def get(self, _: str) -> dict[str, Any]:
        return {"metadata": {}, "spec": {}, "status": {"phase": "Succeeded", "containerStatuses": []}}

    async def post(self, _path: str, _manifest: object) -> None:
        """Create the pod."""

    async def delete(self, _: str) -> None:
        """Delete the pod."""

    @asynccontextmanager
    async def stream(self, _: str, *, silence: float) -> AsyncIterator[AsyncIterator[bytes]]:
        async def answer() -> AsyncIterator[bytes]:
            while not self.report:
                await asyncio.sleep(silence / 2)
                yield b"."
            yield self.report.encode()

        self.away -= 1
        if self.away >= 0:
            raise ClusterUnavailable("connection refused")
        yield answer()


def looking(client: StandInClient) -> Coroutine[Any, Any, Checkpoint]:
    options = ProbeOptions(timeout=60)
    return find_checkpoint(cast("Client", client), with_claim(), MODEL, since=datetime.now(UTC), options=options)


@pytest.mark.skips_waits
async def test_a_log_that_never_ends_is_no_answer() -> None:
    async with asyncio.timeout(600):
        with pytest.raises(OutputsNotVerified, match="its log could not be read within 60 s"):
            await looking(StandInClient())


@pytest.mark.skips_waits
async def test_a_log_is_read_again_after_a_request_without_an_answer() -> None:
    """The answer would else be lost with its pod, and a task of a training that succeeded would fail."""
    report = f'{MARKER}{{"path": "step-7"}}'

    found = await looking(StandInClient(away=2, report=report))

    assert found.path == "step-7"
    with pytest.raises(OutputsNotVerified, match="connection refused"):
        await looking(StandInClient(away=3, report=report))
