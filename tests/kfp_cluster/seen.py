"""Watch a namespace to record every job that it has ever had, however short-lived."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.shell import ClusterFailed, bare_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.kubectl import Kubectl

LINE = '{.metadata.name} {.metadata.uid}{"\\n"}'


@dataclass(frozen=True, kw_only=True)
class JobsSeen:
    """The jobs recorded since the watch started."""

    lines: Path
    watch: subprocess.Popen[bytes]

    def all(self) -> set[tuple[str, str]]:
        """Return the name and uid of every job.

        Raises:
            ClusterFailed: The watch has ended, so the list may be incomplete.
        """
        if self.watch.poll() is not None:
            raise ClusterFailed(f"the watch of jobs has ended with {self.watch.returncode}")
        whole, _, _ = self.lines.read_text().rpartition("\n")
        return {(name, uid) for name, _, uid in (line.partition(" ") for line in whole.splitlines())}


@contextlib.contextmanager
def jobs_seen(kubectl: Kubectl, namespace: str) -> Iterator[JobsSeen]:
    """Watch the jobs of a namespace until the context ends."""
    words = ("get", "pytorchjobs", "--namespace", namespace, "--watch", "--output", f"jsonpath={LINE}")
    environ = bare_environment(kubectl.kubeconfig.parent, KUBECONFIG=str(kubectl.kubeconfig))
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder) / "jobs"
        with lines.open("wb") as file, subprocess.Popen([kubectl.program, *words], stdout=file, env=environ) as watch:
            try:
                yield JobsSeen(lines=lines, watch=watch)
            finally:
                watch.terminate()
