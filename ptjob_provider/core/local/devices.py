"""Reserve devices and ports of this machine for one job at a time; the kernel releases them when the holder dies."""

from __future__ import annotations

import fcntl
import random
import re
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.local.store import locked, make_private, private

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from io import TextIOWrapper
    from pathlib import Path

_NO_DEVICE = re.compile(r"cpu|memory|ephemeral-storage|storage|hugepages-.*|[a-z0-9.-]*kubernetes\.io/.*")


def requested(container: Mapping[str, Any]) -> Iterator[str]:
    """Yield the name of each device that a container requests.

    Raises:
        InvalidSpec: the count is not a whole number.
    """
    resources = container.get("resources") or {}
    for name, quantity in {**(resources.get("requests") or {}), **(resources.get("limits") or {})}.items():
        if _NO_DEVICE.fullmatch(name):
            continue
        if not str(quantity).isdigit():
            raise InvalidSpec.of(f"resources.limits[{name}]", quantity, "allowed: a whole number")
        if int(quantity):
            yield name


FIRST_PORT = 20000
LAST_PORT = 32000
"""Both are below Linux's range of ports for outgoing connections, which therefore take none of these by accident."""


class DevicePool:
    """Pool of this machine's devices; a supervisor holds the locks of its devices' files until it ends."""

    def __init__(self, directory: Path, count: int) -> None:
        self._directory = directory
        self._count = count
        self._held: list[TextIOWrapper] = []

    def acquire(self, wanted: int) -> tuple[int, ...] | None:
        """Reserve this number of devices and return their numbers; None, and no reservation, if too few are free."""
        taken: dict[int, TextIOWrapper] = {}
        if wanted:
            make_private(self._directory)
            with locked(self._directory / "pool.lock"):
                for number in range(self._count):
                    if len(taken) < wanted and (file := self._try(number)):
                        taken[number] = file
        if len(taken) < wanted:
            for file in taken.values():
                file.close()
            return None
        self._held += taken.values()
        return tuple(taken)

    def _try(self, number: int) -> TextIOWrapper | None:
        file = open(self._directory / f"{number}.lock", "a", opener=private)  # noqa: SIM115 - held open
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        return file


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
                _check_free(self.port)
                return
            self._holder.close()

    def close(self) -> None:
        """Release the port."""
        self._holder.close()


def _check_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("", port))
