"""`python -m cluster WORD`: start, use and stop the tests' cluster by hand or from scripts."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cluster import binaries, boot, debian, step_image, sync_image, training_image
from cluster.boot import Cluster
from cluster.layout import Layout
from cluster.shell import ClusterFailed, Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

UNMET = 69  # EX_UNAVAILABLE
ENVIRONMENT = Path(__file__).parents[2] / "scripts" / "environment.sh"


def main() -> int:
    """Run the command line and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m cluster", description=__doc__)
    parser.add_argument("word", choices=(*WORDS, "run"))
    parser.add_argument("--number", type=int, default=0, help="which cluster, if there are several on this machine")
    parser.add_argument("command", nargs="*", help="after `run --`: what uses the cluster, with KUBECONFIG set")
    arguments = parser.parse_args()
    if reason := UNMET_OF.get(arguments.word, boot.unmet)():
        sys.stderr.write(f"{reason}\n")
        return UNMET
    cluster = Cluster.of(Layout.of(os.environ, number=arguments.number))
    try:
        if arguments.word == "run":
            return run(cluster, arguments.command)
        WORDS[arguments.word](cluster)
    except ClusterFailed as error:
        sys.stderr.write(f"{error}\nLogs: {cluster.layout.logs}\n")
        return 1
    return 0


def prepare(cluster: Cluster) -> None:
    """Install and build the cluster's programs; start nothing."""
    cluster.prepare(Progress())


def prepare_images(cluster: Cluster) -> None:
    """Build the images that tests put into the cluster; start no cluster."""
    tell = Progress()
    for image in (training_image.DIGITS, sync_image.SYNC, step_image.STEP):
        image.build(cluster.layout, tell)


def prepare_page(_: Cluster) -> None:
    """Build the Training page of Airflow, with Debian's npm if this machine has none."""
    if not shutil.which("npm"):
        debian.install(("npm",), Progress())
    if code := subprocess.run((ENVIRONMENT, "page"), check=False).returncode:
        sys.exit(code)


def prepare_s3(cluster: Cluster) -> None:
    """Build the S3 server, which tests start outside the cluster."""
    cluster.programs.build(Progress(), [binaries.S3_SERVER])


def prepare_queues(cluster: Cluster) -> None:
    """Build the programs that only some tests need: Arena's command line, Kueue, the metrics server."""
    cluster.programs.build(Progress(), [binaries.ARENA, binaries.KUEUE, binaries.METRICS_SERVER])


def hold(cluster: Cluster) -> None:
    """Keep the cluster up until standard input ends; then stop it, unless it is kept or another process uses it too."""
    with cluster.borrowed(Progress()):
        _say_access(cluster)
        sys.stdin.read()


def images(cluster: Cluster) -> None:
    """Boot the cluster, import the examples' training image, and print how to access the cluster."""
    tell = Progress()
    prepare(cluster)
    cluster.up(tell)
    cluster.keep()
    training_image.DIGITS.ensure(cluster, tell)
    _say_access(cluster)


def run(cluster: Cluster, command: Sequence[str]) -> int:
    """Run a command with KUBECONFIG set and the examples' image in the cluster; return its exit code."""
    tell = Progress()
    with cluster.borrowed(tell):
        training_image.DIGITS.ensure(cluster, tell)
        environment = {**os.environ, "KUBECONFIG": str(cluster.layout.kubeconfig)}
        with subprocess.Popen(command, env=environment) as process, ignoring_interrupts():
            return process.wait()


@contextlib.contextmanager
def ignoring_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C, which the command gets too."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _say_access(cluster: Cluster) -> None:
    sys.stdout.write(f"export KUBECONFIG={cluster.layout.kubeconfig}\n")
    sys.stdout.flush()


WORDS: dict[str, Callable[[Cluster], None]] = {
    "down": Cluster.down,
    "prepare": prepare,
    "prepare-images": prepare_images,
    "prepare-page": prepare_page,
    "prepare-s3": prepare_s3,
    "prepare-queues": prepare_queues,
    "images": images,
    "hold": hold,
}
UNMET_OF: dict[str, Callable[[], str]] = {
    "down": boot.not_root,
    "prepare-page": lambda: debian.unmet_program("npm"),
}
"""Words that need less than a cluster, and what says why this machine lacks it."""

if __name__ == "__main__":
    sys.exit(main())
