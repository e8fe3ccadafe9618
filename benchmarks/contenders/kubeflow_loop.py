"""Train with the kubeflow SDK in a loop: a job that failed is deleted and created again, under another name.

Each line of standard input is the name and the spec of a PyTorchJob; each job has a thread. The SDK
polls at its default interval, 15 s.
"""

from __future__ import annotations

import json
import sys
import threading
from itertools import count
from typing import Any

from kubeflow.training import KubeflowOrgV1PyTorchJob, TrainingClient
from kubernetes.client import V1ObjectMeta

_LONGER_THAN_ANY_BENCHMARK = 24 * 3600


def train(client: TrainingClient, name: str, spec: dict[str, Any]) -> None:
    """Return once a job has succeeded."""
    for attempt in count(1):
        meta = V1ObjectMeta(name=f"{name}-{attempt}", namespace=client.namespace)
        client.create_job(
            KubeflowOrgV1PyTorchJob(api_version="kubeflow.org/v1", kind="PyTorchJob", metadata=meta, spec=spec)
        )
        try:
            client.wait_for_job_conditions(meta.name, wait_timeout=_LONGER_THAN_ANY_BENCHMARK)
        except RuntimeError:
            client.delete_job(meta.name)
        else:
            return


def main() -> None:
    """Read manifests until standard input ends."""
    kubeconfig, namespace = sys.argv[1:]
    client = TrainingClient(config_file=kubeconfig, namespace=namespace, job_kind="PyTorchJob")
    for line in sys.stdin:
        threading.Thread(target=train, args=(client,), kwargs=json.loads(line), daemon=True).start()


if __name__ == "__main__":
    main()
