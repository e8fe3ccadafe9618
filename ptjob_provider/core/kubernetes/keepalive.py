"""Probe idle connections, so that gateways and load balancers do not drop a silent log."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import aiohttp

_OPTIONS = {"TCP_KEEPIDLE": 120, "TCP_KEEPINTVL": 30, "TCP_KEEPCNT": 6}
"""Seconds before and between probes, and tolerated losses: Airflow's own values for its Kubernetes clients."""


def keep_alive(answer: aiohttp.ClientResponse) -> None:
    """Enable TCP keep-alive on the response's connection, as far as the system supports it."""
    transport = answer.connection.transport if answer.connection else None
    connected = transport.get_extra_info("socket") if transport else None
    if connected is None:
        return
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OPTIONS.items():
        if hasattr(socket, name):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
