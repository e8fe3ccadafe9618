"""Show a folder of events on this machine: TensorBoard as a process, for the duration of the view."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import socket
import sys
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from ptjob_provider.core.errors import ClusterError, InvalidSpec, NotThere, UnsupportedByBackend
from ptjob_provider.core.local import processes
from ptjob_provider.core.local.volumes import claim_directory, inside
from ptjob_provider.core.site import check_known

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ptjob_provider.core.local.config import LocalConfig
    from ptjob_provider.core.site import Shown

_INTERVAL = 0.2
_GRACE = 5.0


@asynccontextmanager
async def shown(config: LocalConfig, what: Shown) -> AsyncIterator[str]:
    """Yield the address at which the folder is shown; the process is stopped afterwards.

    Raises:
        NotThere: the claim or the folder on it does not exist.
        InvalidSpec: the port is taken.
        UnsupportedByBackend: TensorBoard is not installed with this package.
        ClusterError: it ended, or did not listen in time.
    """
    if importlib.util.find_spec("tensorboard") is None:
        text = f"TensorBoard is not installed for {sys.executable}: pip install tensorboard, or ptjob-provider[demo]"
        raise UnsupportedByBackend.of("tensorboard", text)
    check_known(what)
    root = claim_directory(config.claims_of(what.namespace), what.plan.claim)
    if not root.is_dir():
        raise NotThere.claim(what.plan.claim, what.namespace, where=str(root))
    folder = inside(root, what.plan.path, field="path") if what.plan.path else root
    if what.job is None and not folder.is_dir():  # a job may still create its folder
        raise NotThere(f"path: {what.plan.path!r} is not there: {folder} is no folder")
    port = what.port or _free_port()
    _check_free(port)
    process = await _started(folder, port)
    try:
        await _until_it_listens(process, port, what.timeout)
        yield f"http://127.0.0.1:{port}/"
    finally:
        await _stopped(process)


async def _started(folder: Path, port: int) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tensorboard.main", "--logdir", str(folder)),
        *("--host", "127.0.0.1", "--port", str(port)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C reaches only this process, which stops that one
        preexec_fn=partial(processes.die_with, os.getpid()),  # in case this process is killed before
    )


async def _until_it_listens(process: asyncio.subprocess.Process, port: int, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while process.returncode is None:
                with suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    return
                await asyncio.sleep(_INTERVAL)
    said = "did not listen in time" if process.returncode is None else f"ended with code {process.returncode}"
    raise ClusterError(f"TensorBoard {said}: {sys.executable} -m tensorboard.main")


async def _stopped(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _GRACE)
    except TimeoutError:
        process.kill()
        await process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _check_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise InvalidSpec.of("--port", port, f"a port that is free ({error.strerror})") from error
