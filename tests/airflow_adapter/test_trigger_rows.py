"""Tests of a trigger's row in Airflow's database: read by another triggerer and by another version of the provider."""

from __future__ import annotations

import inspect
import json

from ptjob_provider.airflow.triggers import PyTorchJobTrigger


def test_every_argument_of_a_trigger_reaches_the_next_triggerer() -> None:
    """As JSON; each argument has a value other than its default here."""
    given = {
        "submission": {"ref": {}},
        "kubernetes_conn_id": "other",
        "in_cluster": False,
        "config_file": "/kubeconfig",
        "cluster_context": "gpus",
        "deadline": "2026-11-20T10:00:00+00:00",
        "limits": {"start_timeout": 5},
        "keep_running_pods": True,
        "hands_off": True,
        "progress": "step (?P<step>[0-9]+)",
        "deferred_at": "2026-11-20T09:00:00+00:00",
    }
    parameters = inspect.signature(PyTorchJobTrigger).parameters.values()

    path, row = PyTorchJobTrigger(**given).serialize()

    assert path == "ptjob_provider.airflow.triggers.PyTorchJobTrigger"
    assert json.loads(json.dumps(row)).items() >= given.items()
    assert [each.name for each in parameters if each.kind is each.KEYWORD_ONLY and each.name not in row] == []


def test_a_triggers_row_of_an_older_version_means_what_it_meant_then() -> None:
    """It lacks later arguments: the job belongs to the task, has no deadline, and ends with its replicas."""
    _, row = PyTorchJobTrigger(submission={}).serialize()

    expected = {"deadline": None, "limits": {}, "keep_running_pods": False, "hands_off": False, "deferred_at": None}
    assert row.items() >= expected.items()
    assert row["kubernetes_conn_id"] == "kubernetes_default"
