# ruff: noqa: INP001 - a folder of Airflow's configuration is not a package
"""Airflow's local settings for the demonstration on a cluster.

The DAG names the image `digits`; the cluster already has the image under its name in a registry. Installations can map
images to a mirror in the same way, because every pod template of a job passes through Airflow's pod mutation hook.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubernetes.client import V1Pod

IMAGES = {"digits": os.environ["DEMO_DIGITS_IMAGE"]}


def pod_mutation_hook(pod: V1Pod) -> None:
    """Replace the names of images with their names on the cluster."""
    for container in pod.spec.containers:
        container.image = IMAGES.get(container.image, container.image)
