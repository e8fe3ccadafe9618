"""Tests of the size of a followed job: it is read from the object when the wanted size has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ptjob_provider.core.run.submit import Submission

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Manifest


def job(workers: int | None) -> Manifest:
    """Return an elastic job; None: its object has no number of pods."""
    gpu = {"name": "pytorch", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    role = {"replicas": workers, "template": {"spec": {"containers": [gpu]}}}
    meta: dict[str, Any] = {"namespace": "team", "name": "digits", "uid": "u-1"}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": meta | {"creationTimestamp": "2026-11-20T12:00:00Z"},
        "spec": {"pytorchReplicaSpecs": {"Worker": role} if workers else {}},
    }


def test_a_job_that_is_scaled_has_other_replicas() -> None:
    """With their ranks and GPUs; the rest stays as submitted."""
    submission = Submission.of(job(1))

    found = submission.resized(job(2))

    assert found.ranks == {"digits-worker-0": 0, "digits-worker-1": 1}
    assert found.gpus_of == {"digits-worker-0": 1, "digits-worker-1": 1}
    assert (found.ref, found.rank0) == (submission.ref, submission.rank0)


@pytest.mark.parametrize("size", [2, None], ids=["as before", "scaled to zero: its log is that of its first pod"])
def test_a_job_of_the_same_or_an_unknown_size_keeps_its_submission(size: int | None) -> None:
    """The same object: ten thousand jobs wait, and each would have a second copy of its replicas."""
    submission = Submission.of(job(2))

    assert submission.resized(job(size)) is submission
