"""Reserve devices and ports of this machine for one job at a time; the kernel releases them when the holder dies."""

from __future__ import annotations

import fcntl
import random
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from ptjob_provider.core.local.store import make_private, private

if TYPE_CHECKING:
    from io import TextIOWrapper
    from pathlib import Path

FIRST_PORT = 20000
LAST_PORT = 32000
"""Both are below Linux's range of ports for outgoing connections, which therefore take none of these by accident."""


def taken(file: Path) -> TextIOWrapper | None:
    """Take this machine's devices for a job, until the returned file is closed; None if another job has them."""
    make_private(file.parent)
    held = open(file, "a", opener=private)  # noqa: SIM115 - held open
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        held.close()
        return None
    return held


class PortReservation:
    """Reservation of a free port for one job of this machine.

    The reservation is the name of an abstract Unix socket, which has the same scope as a port and disappears with the
    process that holds it. The port itself stays unbound, so that the job's program can bind it.
    """

    def __init__(self) -> None:
        while True:
            self.port = random.randint(FIRST_PORT, LAST_PORT)  # noqa: S311 - spreads the ports, nothing is secret
            self._holder = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            with suppress(OSError):
                self._holder.bind(f"\0ptjob-provider-port-{self.port}")
                with socket.socket() as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("", self.port))
                return
            self._holder.close()

    def close(self) -> None:
        """Release the port."""
        self._holder.close()
