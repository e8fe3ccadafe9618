"""Tests of a program that reports its progress to Kubeflow Trainer, whose alpha gate `TrainJobStatus` is on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cluster import trainer, training_image
from kubernetes_backend.trainjobs import Lab
from ptjob_provider.core.run.outcome import Outcome
from ptjob_provider.core.run.training_state import TrainingState

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.boot import Cluster

GATE = "TrainJobStatus=true"

REPORTS = """
import json, os, ssl, time, urllib.request
from datetime import datetime, timezone

def report(percent, left, loss):
    status = {
        "progressPercentage": percent,
        "estimatedRemainingSeconds": left,
        "metrics": [{"name": "loss", "value": str(loss)}],
        "lastUpdatedTime": datetime.now(timezone.utc).isoformat(),
    }
    with open(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]) as file:
        headers = {"Authorization": f"Bearer {file.read().strip()}", "Content-Type": "application/json"}
    body = json.dumps({"trainerStatus": status}).encode()
    request = urllib.request.Request(os.environ["KUBEFLOW_TRAINER_SERVER_URL"], body, headers)
    trusted = ssl.create_default_context(cafile=os.environ["KUBEFLOW_TRAINER_SERVER_CA_CERT"])
    with urllib.request.urlopen(request, context=trusted, timeout=30) as answer:
        print("Trainer answered", answer.status, flush=True)

for percent in (10, 45, 80):
    print(f"step {percent * 2}/200 loss={percent}", flush=True)
    report(percent, 100 - percent, percent / 1000)
    time.sleep(3)
"""
"""A program that reports as "Raw HTTP" of Trainer's guide to the progress of TrainJobs says, with Python alone."""


@pytest.fixture
def lab(own_cluster: Cluster, own_namespace: str, tell: Callable[[str], None]) -> Lab:
    """Return a namespace in which a Trainer with the gate runs TrainJobs."""
    trainer.apply(own_cluster, gates=GATE)
    trainer.wait(own_cluster)
    training_image.DIGITS.ensure(own_cluster, tell)
    return Lab(own_cluster, own_namespace)


async def test_progress_that_is_reported_to_trainer_counts_before_that_of_the_log(lab: Lab) -> None:
    command = ["python3", "-c", REPORTS]
    submission = await lab.submit(image=training_image.DIGITS.name, command=command, workers=1)

    outcome = await lab.follow(submission, state=TrainingState())

    assert outcome.outcome is Outcome.SUCCEEDED, lab.lines
    assert lab.lines.count("Trainer answered 200") == 3
    told = outcome.progress
    assert (told["step"], told["total"], told["eta"], told["source"]) == (80, 100, 20, "trainerStatus")
    assert told["metrics"] == {"loss": 0.08}
    assert told["curve"]["step"] == [10, 45, 80]
