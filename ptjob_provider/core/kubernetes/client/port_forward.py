"""Forward local connections to a port of a pod through the API server.

Each local connection is one web socket with the kubelet's protocol for port forwarding: the first byte of each message
is the channel's number, and the first message of each channel is the port's number.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import aiohttp

from ptjob_provider.core.errors import InvalidSpec, PTJobError
from ptjob_provider.core.kubernetes.client import paths
from ptjob_provider.core.kubernetes.client.connection import channel_messages
from ptjob_provider.core.shared import cancelled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ptjob_provider.core.kubernetes.client.http import Client

logger = logging.getLogger(__name__)

_DATA, _ERROR = range(2)
_NUMBER = 2
_PIECE = 64 * 1024


@asynccontextmanager
async def tunnel(client: Client, namespace: str, pod: str, *, port: int, local_port: int) -> AsyncIterator[int]:
    """Listen on loopback, forward each connection to a pod's port, and yield the local port.

    Args:
        client: client of the pod's cluster.
        namespace: namespace of the pod.
        pod: name of the pod.
        port: port of the pod.
        local_port: port on this machine; 0: any free port.

    Raises:
        InvalidSpec: the local port is taken.
    """
    path = f"{paths.pods(namespace, pod)}/portforward"

    tasks: set[asyncio.Task[None]] = set()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with client.socket(path, [("ports", str(port))]) as socket:
                await _forward(socket, reader, writer)
        except (PTJobError, OSError, aiohttp.ClientError) as error:
            logger.warning("%s/%s: a connection to port %d failed: %s", namespace, pod, port, error)

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(forward(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        task.add_done_callback(lambda _: writer.close())  # runs even if the task is cancelled before it starts

    try:
        server = await asyncio.start_server(connected, "127.0.0.1", local_port)
    except OSError as error:
        raise InvalidSpec.of(
            "--port", local_port, f"allowed: a port that is free ({error.strerror or error})"
        ) from error
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await cancelled(*tasks)


async def _forward(
    socket: aiohttp.ClientWebSocketResponse, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Copy bytes in both directions until either side closes its connection.

    Raises:
        OSError: the kubelet reports that the pod's port is unreachable.
        aiohttp.ClientError: the connection to the API server has broken.
    """
    sending, receiving = asyncio.create_task(_send(socket, reader)), asyncio.create_task(_receive(socket, writer))
    try:
        await asyncio.wait({sending, receiving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ends = await cancelled(sending, receiving)
    for end in ends:
        if isinstance(end, Exception):
            raise end


async def _send(socket: aiohttp.ClientWebSocketResponse, reader: asyncio.StreamReader) -> None:
    while piece := await _read(reader):
        await socket.send_bytes(bytes([_DATA]) + piece)


async def _read(reader: asyncio.StreamReader) -> bytes:
    with suppress(ConnectionError):  # the browser has closed the connection
        return await reader.read(_PIECE)
    return b""


async def _receive(socket: aiohttp.ClientWebSocketResponse, writer: asyncio.StreamWriter) -> None:
    begun: set[int] = set()
    async for channel, message in channel_messages(socket):
        data = message if channel in begun else message[_NUMBER:]
        begun.add(channel)
        if channel == _ERROR and data:
            raise OSError(data.decode(errors="replace").strip())
        try:
            writer.write(data)
            await writer.drain()
        except ConnectionError:  # the browser has closed the connection
            return
