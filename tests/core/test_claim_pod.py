"""Tests of the pod that gives access to a claim, against a scripted API server.

The transfer of files is tested on a cluster.
"""

from __future__ import annotations

import asyncio
import io
import re
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from api_server_stand_in import RESET, SILENT, StandInApiServer, stand_in_api_server
from ptjob_provider.core.errors import ClusterError, ClusterUnavailable
from ptjob_provider.core.inspector import FileOptions
from ptjob_provider.core.kubernetes import claim_files, helper_pods
from ptjob_provider.core.kubernetes.claim_files import ClaimPod, mounted
from ptjob_provider.core.kubernetes.client import connection
from ptjob_provider.core.kubernetes.client.http import shared_client

if TYPE_CHECKING:
    from types import ModuleType

    from ptjob_provider.core.kubernetes import ClusterConfig

pytestmark = pytest.mark.skips_waits

PULLS = ("ErrImagePull", "ImagePullBackOff")
FULL = (403, {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "forbidden: exceeded quota: full"})
GONE = (404, {"kind": "Status", "code": 404, "reason": "NotFound", "details": {"name": "files"}, "message": "gone"})
EVENTS = {"kind": "EventList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}}


def pod(phase: str, **state: Any) -> dict[str, Any]:
    """Return the pod as a kubelet reports it, with this container state."""
    status = {"phase": phase, "containerStatuses": [{"name": "probe", "state": state}]}
    spec = {"nodeName": "n", "containers": [{"name": "probe"}]}
    return {"metadata": {"name": "files", "uid": "p-1"}, "spec": spec, "status": status}


def event(reason: str, message: str) -> dict[str, Any]:
    """Return an event about the pod."""
    about = {"kind": "Pod", "name": "files", "uid": "p-1"}
    told_at = "2026-11-20T12:00:00Z"
    return {"involvedObject": about, "reason": reason, "message": message, "type": "Warning", "lastTimestamp": told_at}


async def opened(*script: Any, **settings: Any) -> list[str]:
    """Return the verbs of all requests of opening the claim; the first one of the script answers the creation."""
    async with stand_in_api_server((200, {}), *script) as server:
        await enter(server.config(**settings), timeout=3600)
    return [line.split()[0] for line in server.requests]


async def refusal(*script: Any, **how: Any) -> tuple[str, list[str]]:
    """Return the error of opening the claim, whose pod was created, and the verbs of all requests."""
    async with stand_in_api_server((200, {}), (200, {}), *script) as server:
        with pytest.raises(ClusterError) as raised:
            await enter(server.config(), **how)
        return str(raised.value), [line.split()[0] for line in server.requests]


async def enter(config: ClusterConfig, **how: Any) -> None:
    options = FileOptions(**{"image": "python:none", "timeout": 0.45, **how})  # enough for one request
    async with shared_client(config) as client, mounted(client, "team", "runs", options):
        pass


@pytest.mark.parametrize("reason", ["ErrImagePull", "InvalidImageName"])
async def test_an_image_that_no_try_can_pull_is_not_waited_for(reason: str) -> None:
    """It fails at once instead of after the long timeout."""
    waits = pod("Pending", waiting={"reason": reason, "message": "manifest unknown: not found"})

    said, verbs = await refusal((200, waits), (200, EVENTS | {"items": []}), timeout=3600)

    assert re.search(rf"does not run \({reason}: .*not found.*; name an image that nodes can pull", said)
    assert verbs == ["GET", "POST", "GET", "GET", "DELETE"]


async def test_a_pod_that_waits_long_reports_each_reason_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reason is reported once; a failed pull and the back-off after it count as one."""
    monkeypatch.setattr(helper_pods, "_QUIET", 0.0)
    monkeypatch.setattr(helper_pods, "_INTERVAL", 0.0)
    failed, paused = (pod("Pending", waiting={"reason": reason, "message": "no such host"}) for reason in PULLS)
    creating = pod("Pending", waiting={"reason": "ContainerCreating"})
    script = [(200, {}), (200, {}), *((200, each) for each in (creating, failed, paused, failed, pod("Running")))]
    messages: list[str] = []
    async with stand_in_api_server(*script) as server:
        await enter(server.config(), timeout=3600, tell=messages.append)

    assert [text.partition(" does not run ")[2] for text in messages] == [
        "(ContainerCreating)",
        "(ErrImagePull: no such host)",
    ]


async def test_a_pod_whose_creation_was_not_answered_is_used() -> None:
    """The name is random: a pod that has it at the second request is that of the first."""
    taken = {"kind": "Status", "code": 409, "reason": "AlreadyExists", "message": "already exists"}

    verbs = await opened(RESET, (409, taken), (200, pod("Running")), (200, {}))

    assert verbs == ["GET", "POST", "POST", "GET", "DELETE"]


@pytest.mark.parametrize(("answer", "logged"), [(403, 0), (503, 1)], ids=["nobody may", "the server is away"])
async def test_a_pod_that_could_not_be_deleted_is_logged(
    answer: int, logged: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Its quota is used until somebody deletes it. As a rule, nobody may delete what was not created."""
    await opened((200, {}), (200, pod("Running")), (answer, {}), attempts=1)

    assert caplog.text.count("could not be deleted") == logged


async def test_a_full_quota_is_waited_for_until_the_time_limit() -> None:
    """Other pods may still be terminating."""
    verbs = await opened(FULL, FULL, (201, {}), (200, pod("Running")), (200, {}))
    async with stand_in_api_server((200, {}), *[FULL] * 9) as server:
        with pytest.raises(ClusterError, match=r"exceeded quota: full.*; free quota for a pod with 100m CPU and 128Mi"):
            await enter(server.config())

    assert verbs == ["GET", "POST", "POST", "POST", "GET", "DELETE"]


async def test_a_pod_that_somebody_deletes_is_no_answer() -> None:
    leaving = pod("Failed", terminated={"exitCode": 143})
    leaving["metadata"]["deletionTimestamp"] = "2026-11-20T12:00:00Z"

    for answer in ((200, leaving), GONE):
        said, _ = await refusal(answer)
        assert "was deleted by somebody" in said


async def test_a_claim_that_is_not_mounted_in_time_is_reported_with_the_pods_events() -> None:
    waits = pod("Pending", waiting={"reason": "ContainerCreating"})
    refused = event("FailedAttachVolume", "Multi-Attach error")

    said, _ = await refusal((200, waits), (200, EVENTS | {"items": [refused]}))

    assert "FailedAttachVolume: Multi-Attach error" in said
    assert "100m CPU and 128Mi" in said
    assert "rank 0" not in said


async def test_a_claim_pod_that_was_never_seen_is_reported() -> None:
    """The API server did not respond within the timeout; a folder of code may have been on the way in a step."""
    said, _ = await refusal(SILENT, title=lambda option: f"PTJOB_{option.upper()}")

    assert "does not run yet; " in said
    assert "PTJOB_PROBE_IMAGE, or --image of" in said
    assert "PTJOB_PROBE_TIMEOUT gives it longer than 0.45 s" in said


class SilentExecStandIn:
    """Opens the web socket of a program, and answers nothing more, as behind a node that is lost."""

    async def open(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=("v4.channel.k8s.io",), autoping=False)
        await socket.prepare(request)
        await asyncio.Event().wait()
        return socket


@pytest.mark.parametrize(("place", "limit"), [(connection, "_HEARTBEAT"), (claim_files, "_LIFE")])
async def test_a_node_that_is_lost_while_files_are_copied_is_reported(
    monkeypatch: pytest.MonkeyPatch, place: ModuleType, limit: str
) -> None:
    monkeypatch.setattr(connection, "_HEARTBEAT", 1e6)
    monkeypatch.setattr(claim_files, "_LIFE", 1e6)
    monkeypatch.setattr(place, limit, 0.2)
    application = web.Application()
    application.router.add_get("/{path:.*}", SilentExecStandIn().open)
    async with TestServer(application, shutdown_timeout=0) as server:
        config = StandInApiServer(url=str(server.make_url("")).rstrip("/")).config()
        async with asyncio.timeout(1e5), shared_client(config) as client:
            with pytest.raises(ClusterUnavailable, match="the connection to the pod broke before"):
                await ClaimPod(client, "team", "files").unpack(io.BytesIO(bytes(100_000_000)), "runs", "x")
