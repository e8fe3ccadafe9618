"""The local back-end under test: its inherited environment, and the processes of a job."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ptjob_provider.core.local.config import base_environment
from ptjob_provider.core.local.processes import with_mark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import psutil

    from ptjob_provider.core.identity import JobRef


def environment() -> dict[str, str]:
    """Return the environment that containers and supervisors inherit; it passes coverage measurement on."""
    measured = {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")}
    return {**base_environment(os.environ), **measured}


def processes_of(ref: JobRef) -> list[psutil.Process]:
    """Return all living processes of a job, wherever they are."""
    return with_mark(f"{ref.uid}/")


def supervisor_of(root: Path, ref: JobRef) -> int:
    """Return the pid of the job's supervisor."""
    return int((root / "jobs" / ref.namespace / ref.name / "supervisor.lock").read_text())


@contextmanager
def without_supervisor(root: Path, ref: JobRef) -> Iterator[None]:
    """Suspend the job's supervisor meanwhile, so that it ends no process."""
    pid = supervisor_of(root, ref)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
