"""Run a server beside a test, with all its processes."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from cluster.shell import ClusterFailed, wait_until
from demo.processes import Component

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path


@contextlib.contextmanager
def serving(
    name: str,
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    log: Path,
    answers: Callable[[], object],
    grace: float = 10.0,
) -> Iterator[None]:
    """Run a server until the context ends; enter it as soon as the server answers.

    Args:
        name: name of the server in messages.
        argv: command of the server.
        env: environment of the server.
        log: file that its output is appended to.
        answers: returns True, or raises ClusterFailed until then.
        grace: seconds between SIGTERM and SIGKILL at the end.

    Raises:
        ClusterFailed: it has ended, or does not answer in time; with the end of its output.
    """
    server = Component(name, [*argv], env, log)

    def check_alive() -> None:
        if not server.is_running:
            raise ClusterFailed(f"{name} has ended:\n{server.tail()}")

    server.start()
    try:
        wait_until(name, answers, timeout=240, alive=check_alive)
        yield
    finally:
        server.stop(grace)
