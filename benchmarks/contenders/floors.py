"""Lower bounds of the cost of waiting: one watch, with and without parsing its events, and `kubectl get --watch`."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.apiserver import ApiServer, reached
from benchmarks.contender import Assignment, Ears, serve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_NAME = re.compile(rb'"name":"(bench-[^"]+)"')
_OVER = re.compile(rb'"type":"(?:Succeeded|Failed)"|"phase":"(?:Succeeded|Failed)"')


async def raw(assignment: Assignment, ears: Ears) -> None:
    """Watch, and search each line for an ending and a name, without parsing or storing it."""
    async with reached(Path(assignment.kubeconfig)) as server:
        version, _ = await _listed(server, assignment)
        async for line in _lines(server, assignment, version):
            if _OVER.search(line) and (name := _NAME.search(line)):
                ears.ended(name[1].decode())


async def parsed(assignment: Assignment, ears: Ears) -> None:
    """Watch, parse each event, store every object: the minimum for every contender with one shared watch."""
    async with reached(Path(assignment.kubeconfig)) as server:
        version, items = await _listed(server, assignment)
        present = {each["metadata"]["uid"]: each for each in items}
        async for line in _lines(server, assignment, version):
            job = json.loads(line)["object"]
            present[job["metadata"]["uid"]] = job
            if any(each["type"] == "Succeeded" for each in (job.get("status") or {}).get("conditions") or ()):
                ears.ended(job["metadata"]["name"])


async def kubectl(assignment: Assignment, ears: Ears) -> None:
    """Run kubectl and read its table; kubectl is the measured process."""
    words = ("get", assignment.options["resource"], "--namespace", assignment.namespace, "--watch", "--no-headers")
    process = await asyncio.create_subprocess_exec(
        assignment.options["kubectl"], "--kubeconfig", assignment.kubeconfig, *words, stdout=asyncio.subprocess.PIPE
    )
    ears.measured_pid = process.pid
    if process.stdout is None:
        raise AssertionError("its output was asked for")
    try:
        async for line in process.stdout:
            name, state, *_ = line.decode().split()
            if state == "Succeeded":
                ears.ended(name)
    finally:
        process.kill()


async def _listed(server: ApiServer, assignment: Assignment) -> tuple[str, list[dict[str, Any]]]:
    page = await server.request("GET", assignment.options["path"])
    return page["metadata"]["resourceVersion"], page["items"]


async def _lines(server: ApiServer, assignment: Assignment, version: str) -> AsyncIterator[bytes]:
    query = f"watch=true&allowWatchBookmarks=true&timeoutSeconds=3600&resourceVersion={version}"
    rest = b""
    async with server.session.get(f"{server.url}{assignment.options['path']}?{query}") as response:
        async for chunk in response.content.iter_any():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield line


def main() -> None:
    """Serve as the contender on the command line."""
    serve({"raw": raw, "parsed": parsed, "kubectl": kubectl}[sys.argv[3]])
