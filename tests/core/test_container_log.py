"""Tests of reading any container's log by one request, behind a real socket, and of a local log's last lines."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from api_server_stand_in import SILENT, STALLED, stand_in_api_server
from ptjob_provider.core.errors import ClusterUnavailable, UnsupportedByBackend
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.kubernetes import ClusterInspector
from ptjob_provider.core.local.config import LocalConfig
from ptjob_provider.core.local.inspector import LocalInspector
from ptjob_provider.core.local.logs import LogFile
from ptjob_provider.core.local.store import JobStore
from rows import each_row
from scripted_node import at

if TYPE_CHECKING:
    from pathlib import Path

    from api_server_stand_in import StandInApiServer
    from ptjob_provider.core.inspector import Inspector

REF = JobRef(kind="PyTorchJob", namespace="team", name="digits", uid="00000000-0000-0000-0000-000000000001")
SOON = 15.0


async def texts(inspector: Inspector, *, container: str = "pytorch", tail: int | None = None) -> list[str]:
    log = inspector.container_log(REF, "digits-master-0", container, follow=False, tail=tail)
    return [line.text async for line in log]


def of(server: StandInApiServer) -> ClusterInspector:
    return ClusterInspector(server.config())


@pytest.mark.skips_waits
@each_row(("tail", "query"), [(None, ""), (0, "&tailLines=0"), (200, "&tailLines=200")])
async def test_the_node_leaves_out_what_is_not_asked_for(tail: int | None, query: str) -> None:
    async with stand_in_api_server((200, f"{at(1)} one\n{at(2)} two\n")) as server:
        found = await texts(of(server), tail=tail)

    assert found == ["one", "two"]
    (request,) = server.requests
    path = "/api/v1/namespaces/team/pods/digits-master-0/log?container=pytorch&timestamps=true&follow=false"
    assert request == f"GET {path}{query} HTTP/1.1"


@pytest.mark.skips_waits
@each_row("answer", [SILENT, STALLED, (200, "unable to retrieve container logs for containerd://0123")])
async def test_a_node_without_an_answer_or_a_log_is_an_error_soon(answer: object) -> None:
    clock = asyncio.get_running_loop().time
    async with stand_in_api_server() as server:
        server.answers = lambda _: answer
        began = clock()
        with pytest.raises(ClusterUnavailable):
            await texts(of(server))

    assert clock() - began < SOON


async def test_the_last_lines_of_a_local_log_are_read_from_its_end(tmp_path: Path) -> None:
    inspector = LocalInspector(LocalConfig(root=tmp_path))
    path = JobStore(tmp_path).files(REF.namespace, REF.name).log("digits-master-0", "pytorch")

    assert await texts(inspector, tail=3) == [], "there is none yet"
    log = LogFile(path)
    log.write(b"one\ntwo\r\nthr\xffe\nbegun")
    assert await texts(inspector, tail=2) == ["two", "thr\ufffde"]
    assert await texts(inspector, tail=9) == ["one", "two", "thr\ufffde"]
    log.write(b"\n" + b"".join(b"%07d\n" % number for number in range(200_000)))
    log.finish()
    found = await texts(inspector, tail=200_000)

    assert await texts(inspector, tail=1) == [f"{199_999:07d}"]
    assert 50_000 < len(found) < 100_000, "as much as 4 MiB have"
    assert found == [f"{number:07d}" for number in range(200_000)][-len(found) :]


@each_row(("container", "tail"), [("pytorch", None), ("sidecar", 3)])
async def test_other_logs_of_this_machine_are_files(tmp_path: Path, container: str, tail: int | None) -> None:
    inspector = LocalInspector(LocalConfig(root=tmp_path))

    with pytest.raises(UnsupportedByBackend, match=rf"such a log is a file: {tmp_path}/.*{container}"):
        await texts(inspector, container=container, tail=tail)
