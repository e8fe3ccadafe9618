# ruff: noqa: INP001 - a folder of Airflow's configuration is not a package
"""Airflow's local settings where the demonstration runs on a cluster.

The DAG says `digits`; the cluster has that image under the name of its registry, and nothing is pulled. Airflow's pod
mutation hook is how installations map images to their mirrors: every pod template of a job passes it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubernetes.client import V1Pod

IMAGES = {"digits": os.environ["DEMO_DIGITS_IMAGE"]}


def pod_mutation_hook(pod: V1Pod) -> None:
    """Name the images as the cluster does."""
    for container in pod.spec.containers:
        container.image = IMAGES.get(container.image, container.image)
