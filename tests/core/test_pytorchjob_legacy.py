"""Tests of PyTorchJobs for the CRD of the old PyTorch operator, which has no `runPolicy`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptjob_provider.core.identity import Owner
from ptjob_provider.core.kinds import PYTORCHJOB, pytorchjob
from ptjob_provider.core.spec import TrainingJob

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Manifest

OLD = frozenset(
    {"activeDeadlineSeconds", "backoffLimit", "cleanPodPolicy", "pytorchReplicaSpecs", "ttlSecondsAfterFinished"}
)
NEW = frozenset({"elasticPolicy", "nprocPerNode", "pytorchReplicaSpecs", "runPolicy"})


def manifest(**given: Any) -> Manifest:
    job = TrainingJob.parse(**{"name": "digits", "image": "i", **given})
    return PYTORCHJOB.render(job, owner=Owner(instance="", ids={}, labels={}), attempt=1).manifest


def test_the_run_policy_stands_at_the_top_of_the_spec() -> None:
    job = manifest(backoff_limit=2, active_deadline_seconds=60, suspend=False)

    spec = PYTORCHJOB.converted_for(job, OLD)["spec"]

    assert spec.keys() <= OLD
    assert {name: part for name, part in spec.items() if name != "pytorchReplicaSpecs"} == {
        "cleanPodPolicy": "Running",
        "backoffLimit": 2,
        "activeDeadlineSeconds": 60,
        "ttlSecondsAfterFinished": pytorchjob.DEFAULT_TTL,
    }


def test_a_job_for_the_training_operator_is_sent_unchanged() -> None:
    """Also for an unknown server, and for a change without a spec."""
    job = manifest()
    note = {"metadata": {"annotations": {"a": "b"}}}

    assert PYTORCHJOB.converted_for(job, NEW) is job
    assert PYTORCHJOB.converted_for(job, frozenset()) is job
    assert PYTORCHJOB.converted_for(note, OLD) is note


def test_changes_at_the_end_are_converted_for_the_old_operator() -> None:
    """An old job's clean-up policy and time to live are read from there too."""
    old = PYTORCHJOB.converted_for(manifest(), OLD)

    assert PYTORCHJOB.STOP_RUNNING_PODS is not None
    assert PYTORCHJOB.converted_for(PYTORCHJOB.STOP_RUNNING_PODS, OLD) == {"spec": {"cleanPodPolicy": "Running"}}
    assert PYTORCHJOB.stops_by_itself(old)
    assert PYTORCHJOB.expiring(old) is None
    assert PYTORCHJOB.expiring({"spec": {}}) is not None


def test_an_object_with_the_old_operators_fields_and_its_pods_are_recognized() -> None:
    """The old operator uses other labels."""
    new = manifest()
    old = PYTORCHJOB.converted_for(new, OLD)

    assert [PYTORCHJOB.is_older(found) for found in (new, old, {})] == [False, True, False]
    assert PYTORCHJOB.pod_selector("digits", older=True) == "pytorch-job-name=digits"
    assert PYTORCHJOB.pod_selector(older=True) == "pytorch-job-name"
