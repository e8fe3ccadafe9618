"""Lists the contestants: how each is started, what it waits for, and the sizes at which it is measured."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.process import ROOT, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

PEERS = ROOT / ".venv-bench" / "bin" / "python"
"""Interpreter of `make bench`'s environment for packages that conflict with Airflow."""


SIZES = (1, 100, 1_000, 10_000)
"""Sizes of the full run."""


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """One contestant.

    Attributes:
        kind: the command that starts it.
        account: the name of its service account.
        waits_for: `jobs` or `pods`.
        sizes: the sizes of the full run at which it is measured.
        why: the reason why it is not measured at larger sizes.
    """

    kind: Kind
    account: str
    waits_for: str = "jobs"
    sizes: Sequence[int] = (1, 100, 1_000, 10_000)
    why: str = ""

    def takes_part(self, size: int) -> bool:
        """Return whether it is measured at this size; for a size outside the full run, whether it is not too large."""
        return size in self.sizes if size in SIZES else size <= max(self.sizes)


TRIGGER = Contestant(kind=Kind(name="PyTorchJobTrigger", module="ours", variant="trigger"), account="trigger")
PARSED_WATCH = Contestant(kind=Kind(name="bare watch, parsed", module="floors", variant="parsed"), account="parsed")
EVERYBODY: Sequence[Contestant] = (
    TRIGGER,
    Contestant(
        kind=Kind(name="our core, Backend.watch", module="ours", variant="core"), account="core", sizes=(100, 10_000)
    ),
    PARSED_WATCH,
    Contestant(
        kind=Kind(name="bare watch, not parsed", module="floors", variant="raw"), account="raw", sizes=(100, 10_000)
    ),
    Contestant(
        kind=Kind(name="kubectl get --watch", module="floors", variant="kubectl"),
        account="kubectl",
        sizes=(100, 10_000),
    ),
    Contestant(
        kind=Kind(name="idle Airflow trigger", module="airflow_process"), account="idle", sizes=(100, 1_000, 10_000)
    ),
    Contestant(
        kind=Kind(name="KubernetesPodTrigger", module="pod_trigger"),
        account="pod-trigger",
        waits_for="pods",
        sizes=(1, 100, 1_000),
        why="at 1,000 it already wants more requests a second than this machine's API server answers",
    ),
    Contestant(
        kind=Kind(name="SparkKubernetesOperator's trigger", module="pod_trigger", variant="spark"),
        account="spark",
        waits_for="pods",
        sizes=(100,),
        why="it is KubernetesPodTrigger, with the driver's pod",
    ),
    Contestant(
        kind=Kind(name="kubeflow SDK, wait_for_job_conditions", module="kubeflow_training", python=PEERS),
        account="kubeflow-sdk",
        sizes=(1, 100, 1_000),
        why="each waiting job takes a thread",
    ),
)


def peer_version() -> str:
    """Return the version of the measured kubeflow SDK."""
    command = (str(PEERS), "-c", "from importlib.metadata import version; print(version('kubeflow-training'))")
    return f"kubeflow-training {subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()}"
