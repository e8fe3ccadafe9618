from __future__ import annotations

from typing import Any

import pytest

from ptjob_provider.core.local.operator import defaulted


def job(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "j"},
        "spec": {"pytorchReplicaSpecs": {"worker": {"replicas": 3}, "MASTER": {}}, **spec},
    }


def test_a_job_gets_the_operators_defaults() -> None:
    """Roles are spelled its way and come in the order of their ranks; what was given is not touched."""
    given = job()

    full = defaulted(given)

    assert full["spec"] == {
        "pytorchReplicaSpecs": {
            "Master": {"replicas": 1, "restartPolicy": "OnFailure"},
            "Worker": {"replicas": 3, "restartPolicy": "OnFailure"},
        },
        "runPolicy": {"cleanPodPolicy": "None"},
        "nprocPerNode": "auto",
    }
    assert list(full["spec"]["pytorchReplicaSpecs"]) == ["Master", "Worker"]
    assert given == job()


def test_what_is_written_stays() -> None:
    """Defaults fill gaps, nulls included."""
    full = defaulted(job(runPolicy={"cleanPodPolicy": "All", "suspend": None}, nprocPerNode="gpu"))

    assert full["spec"]["runPolicy"] == {"cleanPodPolicy": "All", "suspend": None}
    assert full["spec"]["nprocPerNode"] == "gpu"


@pytest.mark.parametrize(
    ("policy", "low", "high"),
    [
        ({}, 3, 3),
        ({"minReplicas": 1}, 1, 1),
        ({"maxReplicas": 5}, 5, 5),
        ({"minReplicas": 1, "maxReplicas": 5}, 1, 5),
    ],
)
def test_an_elastic_range_is_completed(policy: dict[str, Any], low: int, high: int) -> None:
    """With its other end, or with the number of workers."""
    found = defaulted(job(elasticPolicy=policy))["spec"]["elasticPolicy"]

    assert (found["minReplicas"], found["maxReplicas"]) == (low, high)


def test_the_old_place_of_nproc_per_node_holds() -> None:
    """Then the new one is left unset."""
    assert "nprocPerNode" not in defaulted(job(elasticPolicy={"nProcPerNode": 2}))["spec"]
