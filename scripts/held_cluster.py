"""The tests' Kubernetes, held up while several test runs follow one another."""

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
"""How the command ends on a machine that can have no cluster."""


def is_required() -> bool:
    """Tell whether a machine without a cluster is an error; CI says so."""
    return os.environ.get(REQUIRED) == "1"


def command(word: str) -> tuple[str, ...]:
    """Return what does something with the cluster."""
    return ("env", f"PYTHONPATH={TESTS}", sys.executable, "-m", "cluster", word)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Have the cluster up, or be told on standard error why not; on leaving it goes down unless it was up before.

    Another process holds it for as long as its standard input, our end of a pipe, is open. So it goes down however we
    end, and a Ctrl-C, which reaches every process of this terminal, does not take it away from tests that still use it.
    """
    pipe = subprocess.PIPE
    holder = subprocess.Popen(command("hold"), stdin=pipe, stdout=pipe, start_new_session=True)
    try:
        _ = holder.stdout and holder.stdout.readline()
        yield
    finally:
        holder.communicate()
