"""Keep the Kubernetes cluster of the tests up during several test runs."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).resolve().parent.parent / "tests"
REQUIRED = "PTJOB_REQUIRE_CLUSTER"
UNMET = 69
"""Exit code of the cluster's command on a machine that cannot run one."""


def is_required() -> bool:
    """Return whether it is an error if the machine cannot run a cluster, as in CI."""
    return os.environ.get(REQUIRED) == "1"


def command(word: str) -> tuple[str, ...]:
    """Return the command line for an action on the cluster."""
    return ("env", f"PYTHONPATH={TESTS}", sys.executable, "-m", "cluster", word)


@contextlib.contextmanager
def held() -> Iterator[int]:
    """Keep the cluster up inside the block and yield 0; stop it afterwards unless it was up before.

    If the cluster does not come up, print the reason and yield the exit code of its command.

    Another process holds the cluster while its standard input, a pipe from this process, is open. So the cluster is
    released however this process ends. The holder has a session of its own, because a Ctrl-C reaches every process of
    the terminal while tests may still use the cluster.
    """
    pipe = subprocess.PIPE
    holder = subprocess.Popen(command("hold"), stdin=pipe, stdout=pipe, start_new_session=True)
    try:
        is_up = holder.stdout is not None and holder.stdout.readline()
        yield 0 if is_up else holder.wait() or 1
    finally:
        holder.communicate()
