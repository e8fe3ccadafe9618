"""`python -m cluster up | down | status | prepare | images`: the tests' cluster for a person."""

from __future__ import annotations

import argparse
import os
import sys

from cluster import boot, training_image
from cluster.boot import Cluster
from cluster.layout import Layout
from cluster.shell import ClusterFailed, Progress

UNMET = 69  # EX_UNAVAILABLE


def main() -> int:
    """Do what the command line says and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m cluster", description=__doc__)
    parser.add_argument("word", choices=("up", "down", "status", "prepare", "images"))
    parser.add_argument("--number", type=int, default=0, help="which cluster, if there are several on this machine")
    arguments = parser.parse_args()
    reason = boot.not_root() if arguments.word in {"down", "status"} else boot.unmet()
    if reason:
        sys.stderr.write(f"{reason}\n")
        return UNMET
    cluster = Cluster.of(Layout.of(os.environ, number=arguments.number))
    try:
        {"up": up, "down": down, "status": status, "prepare": prepare, "images": images}[arguments.word](cluster)
    except ClusterFailed as error:
        sys.stderr.write(f"{error}\nLogs: {cluster.layout.logs}\n")
        return 1
    return 0


def up(cluster: Cluster) -> None:
    """Boot it and say how to reach it."""
    cluster.up(Progress())
    cluster.keep()
    sys.stdout.write(f"export KUBECONFIG={cluster.layout.kubeconfig}\n")


def down(cluster: Cluster) -> None:
    """End it."""
    cluster.down()


def prepare(cluster: Cluster) -> None:
    """Install and build everything, start nothing."""
    cluster.prepare(Progress())


def images(cluster: Cluster) -> None:
    """Boot it and have the images in it that the examples train with."""
    up(cluster)
    training_image.ensure_digits(cluster, Progress())


def status(cluster: Cluster) -> None:
    """Say what runs."""
    state = "ready" if cluster.is_ready else "not ready" if cluster.machine.first_pid else "down"
    sys.stdout.write(f"{state}\n")
    for name, component in cluster.components().items():
        pid = cluster.machine.find(component.program)
        sys.stdout.write(f"  {name:24} {f'pid {pid}' if pid else 'does not run'}\n")
    if cluster.is_ready:
        sys.stdout.write(f"export KUBECONFIG={cluster.layout.kubeconfig}\n")


if __name__ == "__main__":
    sys.exit(main())
