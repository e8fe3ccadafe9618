"""Keeps the tests' Kubernetes cluster up during several consecutive test runs."""

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
"""Exit code of the command on a machine that cannot run a cluster."""


def is_required() -> bool:
    """Return whether a machine without a cluster is an error; CI requires one."""
    return os.environ.get(REQUIRED) == "1"


def command(word: str) -> tuple[str, ...]:
    """Return the command that acts on the cluster."""
    return ("env", f"PYTHONPATH={TESTS}", sys.executable, "-m", "cluster", word)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Keep the cluster up inside the block, or print why it cannot run; stop it afterwards unless it was up before.

    Another process holds it for as long as its standard input, our end of a pipe, is open. So it is released however we
    end, and a Ctrl-C, which reaches every process of this terminal, does not stop it while tests still use it.
    """
    pipe = subprocess.PIPE
    holder = subprocess.Popen(command("hold"), stdin=pipe, stdout=pipe, start_new_session=True)
    try:
        _ = holder.stdout and holder.stdout.readline()
        yield
    finally:
        holder.communicate()
