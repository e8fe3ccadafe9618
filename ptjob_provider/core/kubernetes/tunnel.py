"""Forward a local port to a pod's port through the API server, like `kubectl port-forward`, without kubectl.

Each local connection is one web socket with the kubelet's port protocol: the first byte of each message is a channel,
the first message of each channel is the port's number.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import aiohttp

from ptjob_provider.core.errors import InvalidSpec, PTJobError
from ptjob_provider.core.kubernetes import paths

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ptjob_provider.core.kubernetes.client import Client

logger = logging.getLogger(__name__)

_DATA, _ERROR = range(2)
_NUMBER = 2
_PIECE = 64 * 1024


@asynccontextmanager
async def tunnel(client: Client, namespace: str, pod: str, *, port: int, local_port: int) -> AsyncIterator[int]:
    """Listen on loopback and forward every connection to the pod's port; yields the local port.

    Args:
        client: of the pod's cluster.
        namespace: of the pod.
        pod: its name.
        port: the pod's.
        local_port: this machine's; 0: any free port.

    Raises:
        InvalidSpec: the port is taken.
    """
    path = f"{paths.pods(namespace, pod)}/portforward"

    carrying: set[asyncio.Task[None]] = set()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with client.socket(path, [("ports", str(port))]) as socket:
                await _carry(socket, reader, writer)
        except (PTJobError, OSError, aiohttp.ClientError) as error:
            logger.warning("%s/%s: a connection to port %d failed: %s", namespace, pod, port, error)

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(carry(reader, writer))
        carrying.add(task)
        task.add_done_callback(carrying.discard)
        task.add_done_callback(lambda _: writer.close())  # also if it is cancelled before it has started

    try:
        server = await asyncio.start_server(connected, "127.0.0.1", local_port)
    except OSError as error:
        raise InvalidSpec.of("--port", local_port, f"a port that is free ({error.strerror or error})") from error
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        ending = tuple(carrying)
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)


async def _carry(
    socket: aiohttp.ClientWebSocketResponse, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Copy bytes both ways until either side ends.

    Raises:
        OSError: the kubelet reports that the pod's port is unreachable.
        aiohttp.ClientError: the connection to the API server has broken.
    """
    sending, receiving = asyncio.create_task(_send(socket, reader)), asyncio.create_task(_receive(socket, writer))
    try:
        await asyncio.wait({sending, receiving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (sending, receiving):
            task.cancel()
        ends = await asyncio.gather(sending, receiving, return_exceptions=True)
    for end in ends:
        if isinstance(end, Exception):
            raise end


async def _send(socket: aiohttp.ClientWebSocketResponse, reader: asyncio.StreamReader) -> None:
    while piece := await _read(reader):
        await socket.send_bytes(bytes([_DATA]) + piece)


async def _read(reader: asyncio.StreamReader) -> bytes:
    with suppress(ConnectionError):  # a closed page is no error
        return await reader.read(_PIECE)
    return b""


async def _receive(socket: aiohttp.ClientWebSocketResponse, writer: asyncio.StreamWriter) -> None:
    begun: set[int] = set()
    async for message in socket:
        if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
            continue
        channel, data = message.data[0], message.data[1:]
        if channel not in begun:
            begun.add(channel)
            data = data[_NUMBER:]
        if channel == _ERROR and data:
            raise OSError(data.decode(errors="replace").strip())
        try:
            writer.write(data)
            await writer.drain()
        except ConnectionError:  # as above
            return
