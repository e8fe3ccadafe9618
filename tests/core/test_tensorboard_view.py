"""Tests of the API requests that show a folder of events; a scripted stand-in replaces the server.

A test on the cluster checks that curves arrive.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from api_server_stand_in import SILENT, stand_in_api_server
from core.test_tensorboard import beside
from ptjob_provider.core.errors import ClusterError, InvalidSpec
from ptjob_provider.core.inspector import TensorBoardView
from ptjob_provider.core.kubernetes.client.http import shared_client
from ptjob_provider.core.kubernetes.client.port_forward import tunnel
from ptjob_provider.core.kubernetes.tensorboard.view import shown
from ptjob_provider.core.tensorboard import TensorBoardPlan
from rows import each_row

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ptjob_provider.core.kubernetes.client.http import Client

pytestmark = pytest.mark.skips_waits

ADDRESS = "http://10.0.0.7:30131/"
GONE = (404, {"kind": "Status", "code": 404, "reason": "NotFound", "details": {"name": "digits"}, "message": "gone"})
READY = {"metadata": {"name": "beside"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
LEAVING = {**READY, "metadata": {"name": "beside", "deletionTimestamp": "2026-11-20T12:00:00Z"}}


def pods(*items: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return 200, {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": list(items)}


def asked(*, url: str = ADDRESS, **how: Any) -> TensorBoardView:
    """Return a view of a job whose TensorBoard has this address."""
    job, plan = beside(namespace="team")
    job["metadata"]["annotations"] |= replace(plan, url=url).annotation
    return TensorBoardView(**{"namespace": "team", "plan": replace(plan, image="digits:1"), "job": job, **how})


async def test_a_jobs_tensorboard_is_used() -> None:
    async with stand_in_api_server(pods(READY)) as server, shared_client(server.config()) as client:
        async with shown(client, asked()) as address:
            assert address.startswith("http://127.0.0.1:")
        verbs = [line.split()[0] for line in server.requests]

    assert verbs == ["GET"]


@pytest.mark.parametrize(
    ("url", "beside"),
    [("", None), (ADDRESS, []), (ADDRESS, [{**READY, "status": {}}]), (ADDRESS, [LEAVING])],
    ids=["it was deleted at its job's end", "no pod", "a pod that is not ready", "a pod that leaves"],
)
async def test_a_tensorboard_of_a_job_that_is_not_ready_is_not_used(url: str, beside: list[Any] | None) -> None:
    """A separate pod may succeed: the TensorBoard of a suspended job waits for a pod of the job."""
    script = (GONE,) if beside is None else (pods(*beside), GONE)
    async with stand_in_api_server(*script) as server, shared_client(server.config()) as client:
        with pytest.raises(InvalidSpec, match="a claim of namespace team"):
            await enter(client, asked(url=url))

    assert server.requests[-1].split()[1] == "/api/v1/namespaces/team/persistentvolumeclaims/runs"
    assert len(server.requests) == len(script)


def nobodys(**how: Any) -> TensorBoardView:
    """Return a folder whose job is unknown."""
    return TensorBoardView(namespace="team", plan=TensorBoardPlan(claim="runs", path="tb", image="digits:1"), **how)


async def test_a_tensorboard_pod_that_ended_is_reported_with_its_last_lines() -> None:
    """With the remedy that helps here, another image; nothing about the pods that inspect outputs."""
    end = {"exitCode": 1, "reason": "Error", "message": "one\ntwo\nNo module named 'tensorboard'\n"}
    ended = {
        "metadata": {"name": "look", "uid": "p-1"},
        "spec": {"nodeName": "n", "containers": [{"name": "tensorboard"}]},
        "status": {"phase": "Failed", "containerStatuses": [{"name": "tensorboard", "state": {"terminated": end}}]},
    }
    script = ((200, {}), pods(), (200, {}), (200, ended), pods(), (200, {}))
    async with stand_in_api_server(*script) as server, shared_client(server.config()) as client:
        with pytest.raises(ClusterError) as raised:
            await enter(client, nobodys())
        verbs = [line.split()[0] for line in server.requests]

    said = str(raised.value)
    assert "--image, or [ptjob] tensorboard_image" in said
    assert said.splitlines()[1:] == ["one", "two", "No module named 'tensorboard'"]
    assert "probe" not in said
    assert verbs[-1] == "DELETE"


async def test_a_tensorboard_pod_that_was_never_seen_is_reported() -> None:
    """The API server was too slow for the available time."""
    script = ((200, {}), pods(), (200, {}), SILENT)
    async with stand_in_api_server(*script) as server, shared_client(server.config()) as client:
        with pytest.raises(ClusterError, match="does not listen yet"):
            await enter(client, nobodys(timeout=0.1))


async def enter(client: Client, what: TensorBoardView) -> None:
    async with shown(client, what):
        pass


async def test_only_a_port_that_is_taken_is_called_so() -> None:
    """Later errors have nothing to do with the port."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        async with stand_in_api_server(pods(READY)) as server, shared_client(server.config()) as client:
            with pytest.raises(InvalidSpec, match=f"--port: {port} is not allowed; allowed: a port that is free"):
                await enter(client, asked(port=port))

    async with stand_in_api_server(pods(READY)) as server, shared_client(server.config()) as client:
        with pytest.raises(OSError, match="the caller's own"):
            await fail(client, asked())


async def fail(client: Client, what: TensorBoardView) -> None:
    async with shown(client, what):
        raise OSError("the caller's own")


class KubeletStandIn:
    """Accepts a connection to a pod's port, and reports that nothing listens there."""

    @asynccontextmanager
    async def socket(self, _path: str, _query: object) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        app = web.Application()
        app.router.add_get("/", self._refuse)
        async with (
            TestServer(app) as server,
            aiohttp.ClientSession() as session,
            session.ws_connect(server.make_url("/")) as found,
        ):
            yield found

    async def _refuse(self, request: web.Request) -> web.WebSocketResponse:
        found = web.WebSocketResponse()
        await found.prepare(request)
        await found.send_bytes(b"\x00\x76\x17")
        await found.send_bytes(b"\x01\x76\x17")
        await found.send_bytes(b"\x01connection refused")
        await found.close()
        return found


async def test_a_failed_connection_through_the_tunnel_is_logged_with_its_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A kubelet's message about a pod's port is not lost with the connection; the kubelet is a stand-in."""
    async with tunnel(cast("Client", KubeletStandIn()), "team", "look", port=6006, local_port=0) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        writer.close()

    assert "team/look: a connection to port 6006 failed: connection refused" in caplog.text


@each_row("rounds", range(4, 9))
async def test_a_connection_that_has_just_come_is_closed_when_the_looking_ends(rounds: int) -> None:
    """Also one that asyncio has only just opened, without any data: its client would wait."""
    async with tunnel(cast("Client", KubeletStandIn()), "team", "look", port=6006, local_port=0) as port:
        browser = socket.create_connection(("127.0.0.1", port), timeout=10)
        for _ in range(rounds):
            await asyncio.sleep(0)

    await asyncio.sleep(0)
    with browser, suppress(ConnectionResetError):
        assert browser.recv(1) == b""
