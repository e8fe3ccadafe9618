"""Tests of the registry of kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ptjob_provider.core import kinds, manifest
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.kinds.trainer_steps import runtime_of
from ptjob_provider.core.spec import TrainingJob

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Manifest

REF = JobRef(kind="PyTorchJob", namespace="team", name="digits", uid="job")


def pod(**owner: str) -> Manifest:
    """Return a pod with one owner."""
    return {"metadata": {"name": "digits-master-0", "ownerReferences": [owner] if owner else []}}


def test_a_manifest_may_be_of_every_kind_that_is_known() -> None:
    """Manifests can be read and rendered for the same kinds."""
    assert {name: kind.API_VERSION for name, kind in kinds.KINDS.items()} == dict(manifest.KINDS)


def test_a_kind_that_is_not_known_is_refused_by_its_name() -> None:
    with pytest.raises(InvalidSpec, match=r"^kind: 'TFJob'.*PyTorchJob"):
        kinds.named("TFJob")


def test_a_job_is_tried_as_every_kind_unless_it_names_one() -> None:
    named, free = (TrainingJob.parse(name="a", image="b", **kind) for kind in ({"kind": "TrainJob"}, {}))

    assert kinds.creatable(named, preferred="PyTorchJob") == ("TrainJob",)
    assert kinds.creatable(free, preferred="TrainJob") == ("TrainJob", "PyTorchJob", "PyTorchTrainingJob")


def test_an_object_that_does_not_say_its_kind_is_of_the_default_one() -> None:
    """Items of some lists have no kind."""
    assert kinds.kind_of({"metadata": {}}) is kinds.DEFAULT


def test_a_pod_belongs_to_the_job_whose_uid_it_names() -> None:
    """A deleted job of the same name may have left its pods behind."""
    assert kinds.is_pod_of(pod(kind="PyTorchJob", name="digits", uid="job"), REF)
    assert not kinds.is_pod_of(pod(kind="PyTorchJob", name="digits", uid="an earlier one"), REF)
    assert not kinds.is_pod_of(pod(kind="ReplicaSet", name="digits", uid="job"), REF)
    assert not kinds.is_pod_of(pod(), REF)


def test_a_suspended_pytorchjob_is_one_whose_run_policy_says_so() -> None:
    """The operator deletes its pods, and creates them again."""
    changes = [kinds.named("PyTorchJob").suspended(suspend=suspend) for suspend in (True, False)]

    assert changes == [{"spec": {"runPolicy": {"suspend": True}}}, {"spec": {"runPolicy": {"suspend": False}}}]


@pytest.mark.parametrize(
    ("kind", "controllers", "replica"),
    [
        ("PyTorchJob", (), "digits-worker-0"),
        ("PyTorchTrainingJob", (), "digits-worker-0"),
        ("TrainJob", (("JobSet", "digits"), ("Job", "digits-node-0")), "digits-worker"),
    ],
)
def test_each_kind_names_the_controllers_between_a_job_and_its_pods(
    kind: str, controllers: tuple[tuple[str, str], ...], replica: str
) -> None:
    """Their events name pods that could not be created."""
    assert kinds.controllers({"kind": kind, "metadata": {"name": "digits"}, "spec": {}}) == controllers
    assert kinds.named(kind).replica_named("digits-worker-0") == replica


def test_a_pod_of_one_word_is_a_replica_of_that_name() -> None:
    """No pod of a TrainJob has such a name."""
    assert kinds.named("TrainJob").replica_named("digits") == "digits"


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ({"name": "torch"}, "torch"),
        ({"kind": "TrainingRuntime", "name": "ours"}, "TrainingRuntime/ours"),
        ({"apiGroup": "example.org", "name": "theirs"}, ""),
        ({"kind": "Recipe", "name": "theirs"}, ""),
    ],
)
def test_the_runtime_of_a_trainjob_is_the_one_it_names(reference: dict[str, str], expected: str) -> None:
    """The default kind is the cluster-wide one; runtimes of other groups are unknown."""
    assert runtime_of({"spec": {"runtimeRef": reference}}) == expected


@pytest.mark.parametrize("kind", ["TrainJob", "PyTorchTrainingJob"])
def test_one_label_finds_the_pods_of_these_kinds(kind: str) -> None:
    """All known versions use the same label."""
    found = kinds.named(kind)

    assert not found.is_older({"spec": {"backoffLimit": 1}})
    assert found.pod_selector("digits", older=True) == found.pod_selector("digits")
