"""The stand-in for an API server leaves nothing behind that a later test would be blamed for."""

from __future__ import annotations

import asyncio
import socket

from api_server_stand_in import stand_in_api_server
from rows import each_row


@each_row("rounds", range(3, 9))
async def test_a_connection_that_has_just_come_is_closed(rounds: int) -> None:
    """Python's collector would find it open much later, and warn in whatever test then runs."""
    async with stand_in_api_server() as stand_in:
        port = int(stand_in.url.rpartition(":")[2])
        client = socket.create_connection(("127.0.0.1", port), timeout=10)
        for _ in range(rounds):
            await asyncio.sleep(0)

    with client:
        assert client.recv(1) == b""
