"""Tests of assigning pods and events to jobs, in any order of arrival."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ptjob_provider.core import kinds
from ptjob_provider.core.kubernetes.informer.scope import PodOwnerIndex, by_name, by_uid, created_at, selectors_of

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Manifest

FIRST, SECOND, THIRD = "2026-11-20T10:00:00Z", "2026-11-20T10:00:01Z", "2026-11-20T10:00:02Z"


def job(uid: str, made_at: str = SECOND) -> Manifest:
    return {"metadata": {"name": "digits", "uid": uid, "creationTimestamp": made_at}}


def pod(uid: str = "pod", made_at: str = SECOND) -> Manifest:
    """Return a pod that JobSet created."""
    labels = {"jobset.sigs.k8s.io/jobset-name": "digits"}
    return {"metadata": {"name": f"digits-{uid}", "uid": uid, "labels": labels, "creationTimestamp": made_at}}


@pytest.fixture
def owners() -> PodOwnerIndex:
    """Return the owners of a namespace's TrainJobs."""
    return PodOwnerIndex(kinds.named("TrainJob"))


def test_a_pod_is_of_the_job_of_its_name(owners: PodOwnerIndex) -> None:
    before = owners.uid_of(pod())
    owners.learn(job("one"))
    meanwhile = owners.uid_of(pod())
    owners.forget("one")

    assert (before, meanwhile, owners.uid_of(pod())) == ("", "one", "")


def test_a_pod_that_is_older_than_the_job_is_an_earlier_ones(owners: PodOwnerIndex) -> None:
    """A deleted job's pods exist for their grace period, and the next job may have its name."""
    owners.learn(job("one", FIRST))
    owners.learn(job("two", THIRD))

    assert owners.uid_of(pod(made_at=SECOND)) == ""
    assert owners.uid_of(pod(made_at=THIRD)) == "two"


def test_the_end_of_an_earlier_job_does_not_remove_the_next_one(owners: PodOwnerIndex) -> None:
    owners.learn(job("one"))
    owners.learn(job("two"))
    owners.forget("one")
    owners.forget("never seen")

    assert owners.uid_of(pod()) == "two"


def test_a_pod_that_came_before_its_job_is_kept_for_it(owners: PodOwnerIndex) -> None:
    """Except for a job that is gone by then, and a pod that names no job."""
    stranger: Manifest = {"metadata": {"name": "web", "uid": "stranger"}}
    for each in (pod("here"), pod("gone"), stranger):
        owners.keep(each)
    owners.drop(pod("gone"))
    owners.drop(stranger)

    assert owners.learn(job("one")) == [pod("here")]
    assert owners.learn(job("one")) == []


def test_deleted_pods_that_came_before_their_job_are_not_kept(owners: PodOwnerIndex) -> None:
    owners.keep(pod("gone"))
    owners.drop(pod("gone"))
    empty = owners.learn(job("one"))
    owners.keep(pod("late"))

    assert empty == owners.learn(job("one")) == []


def test_pods_that_a_list_no_longer_has_are_not_kept(owners: PodOwnerIndex) -> None:
    """They were deleted while nothing was watched."""
    for each in (pod("here"), pod("gone")):
        owners.keep(each)
    before = owners.early_uids
    owners.drop_missing({"gone", "of another job"})

    assert (before, owners.early_uids) == ({"here", "gone"}, {"here"})


def test_a_pod_that_names_its_owner_by_uid_needs_no_job_to_be_known() -> None:
    """Like the pods of PyTorchJobs."""
    owners = PodOwnerIndex(kinds.named("PyTorchJob"))
    reference = {"kind": "PyTorchJob", "name": "digits", "uid": "one"}

    assert owners.learn(job("two")) == []
    assert owners.uid_of({"metadata": {"name": "digits-master-0", "ownerReferences": [reference]}}) == "one"


def test_an_event_is_found_by_uid_and_by_kind_and_name() -> None:
    """So that one list of all events serves both kinds of lookup."""
    event = {"involvedObject": {"kind": "Job", "name": "digits-node-0", "uid": "u-1"}}

    assert selectors_of(event) == (by_uid("u-1"), by_name("Job", "digits-node-0"))
    assert selectors_of({}) == (by_uid(""), by_name("", ""))


def test_an_event_that_the_server_does_not_have_sorts_last() -> None:
    assert created_at({"metadata": {"creationTimestamp": "2026-11-20T10:00:00Z"}}) == "2026-11-20T10:00:00Z"
    assert created_at({"reason": "NotApplied"}) > "2026-11-20T10:00:00Z"
