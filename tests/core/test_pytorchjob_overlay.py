from __future__ import annotations

from typing import Any

import pytest

from ptjob_provider.core import kinds
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.spec import Installation, TrainingJob, job_template
from recorded import OWNER, recorded
from rendered import SHM, container, mounted, over, pod, render, variables
from rows import each_row

# typed fields


def test_a_ttl_of_0_is_kept() -> None:
    policy = render(ttl_seconds_after_finished=0, backoff_limit=0, suspend=False).manifest["spec"]["runPolicy"]

    assert policy == {"cleanPodPolicy": "Running", "backoffLimit": 0, "ttlSecondsAfterFinished": 0, "suspend": False}


def test_claims_are_mounted_once_each_under_names_that_volumes_can_have() -> None:
    """Two directories of a claim share a volume; dots and long names become labels; names never collide."""
    long = "c" * 80
    rendered = render(
        volumes=["runs/a:/a", "runs/b:/b", "my.data:/dots", "my-data:/dashes", f"{long}:/long", "shared-memory:/c"]
    ).manifest
    found = mounted(rendered)

    assert found["/a"] is found["/b"]
    assert [mount.get("subPath") for mount in container(rendered)["volumeMounts"]][:2] == ["a", "b"]
    claims = {path: volume["persistentVolumeClaim"]["claimName"] for path, volume in found.items() if path != SHM}
    assert claims == {
        "/a": "runs",
        "/b": "runs",
        "/dots": "my.data",
        "/dashes": "my-data",
        "/long": long,
        "/c": "shared-memory",
    }
    names = [volume["name"] for volume in pod(rendered)["volumes"]]
    assert len(set(names)) == len(names) == 6
    assert all(len(name) <= 63 and "." not in name for name in names)


# typed fields over a manifest


@pytest.mark.parametrize(
    ("story", "workers", "replicas"),
    [
        ("manifest-args-only", 5, {"Master": 1, "Worker": 4}),
        ("manifest-args-only", 1, {"Master": 1}),
        ("manifest-elastic", 3, {"Worker": 3}),
        ("manifest-elastic", 1, {"Worker": 1}),
    ],
)
def test_workers_over_a_manifest_counts_all_its_pods(story: str, workers: int, replicas: dict[str, int]) -> None:
    """The Worker role grows, shrinks or is removed; in a manifest without a master the workers alone are counted."""
    roles = over(story, workers=workers)["spec"]["pytorchReplicaSpecs"]

    assert {role: replica["replicas"] for role, replica in roles.items()} == replicas


def test_workers_over_a_lone_master_adds_workers_like_it() -> None:
    manifest = recorded("manifest-args-only")
    del manifest["spec"]["pytorchReplicaSpecs"]["Worker"]
    del manifest["spec"]["pytorchReplicaSpecs"]["Master"]["replicas"]

    roles = render(manifest=manifest, workers=3).manifest["spec"]["pytorchReplicaSpecs"]

    assert roles["Worker"] == {**roles["Master"], "replicas": 2}


@each_row(
    ("values", "limits"),
    [
        ({}, {"memory": "64Gi", "amd.com/gpu": 2}),
        ({"gpus": 8}, {"memory": "64Gi", "amd.com/gpu": "8"}),
        ({"gpus": 1, "gpu_resource": "nvidia.com/gpu"}, {"memory": "64Gi", "amd.com/gpu": 2, "nvidia.com/gpu": "1"}),
        ({"memory": "8Gi"}, {"memory": "8Gi", "amd.com/gpu": 2}),
        ({"container_resources": {"limits": {"cpu": 9}}}, {"memory": "64Gi", "amd.com/gpu": 2, "cpu": "9"}),
    ],
)
def test_resources_over_a_manifest_replace_only_what_they_name(values: dict[str, Any], limits: dict[str, Any]) -> None:
    """`gpus` counts the device that the manifest requests, unless another one is set; 0 removes it."""
    rendered = over("manifest-rich", **values)

    assert container(rendered)["resources"]["limits"] == limits


def test_no_gpus_over_a_manifest_leave_no_request_for_them_either() -> None:
    """The API server refuses a request without its limit."""
    assert container(over("manifest-rich", gpus=0))["resources"] == {
        "requests": {"cpu": 4},
        "limits": {"memory": "64Gi"},
    }
    assert "resources" not in container(over("manifest-args-only", gpus=0))


def test_variables_over_a_manifest_replace_those_of_their_name_in_place() -> None:
    rendered = over("manifest-rich", env={"FIRST": "2", "NEW": "3"})

    assert variables(rendered) == {"PTJOB_ATTEMPT": "1", "FIRST": "2", "TOKEN": "a reference", "NEW": "3"}
    assert variables(rendered, "Worker") == {"PTJOB_ATTEMPT": "1", "FIRST": "2", "NEW": "3"}


def test_volumes_over_a_manifest_use_its_volumes_and_replace_a_mount_at_their_path() -> None:
    """The volume of a claim is used; the mount at the same path is replaced; others stay."""
    rendered = over("manifest-rich", volumes=["team-data/other:/models", "reference-sets:/own"])
    mounts = {mount["mountPath"]: mount for mount in container(rendered)["volumeMounts"]}

    assert mounts["/models"] == {"name": "data", "mountPath": "/models", "subPath": "other"}
    assert mounts["/own"]["name"] != "reference"  # that volume is read-only as a whole
    assert mounted(rendered)["/own"]["persistentVolumeClaim"] == {"claimName": "reference-sets"}
    assert len(mounts) == 7
    assert set(mounted(rendered, "Worker")) == {"/models", "/own"}


def test_shared_memory_over_a_manifest_replaces_its_mount() -> None:
    """There is one mount at /dev/shm, of the requested size, or none."""
    sized, off = over("manifest-rich", shared_memory="32Gi"), over("manifest-rich", shared_memory=False)

    assert mounted(sized)[SHM]["emptyDir"] == {"medium": "Memory", "sizeLimit": "32Gi"}
    assert SHM not in mounted(off)


def test_run_policy_and_restart_policy_over_a_manifest_replace_their_places() -> None:
    """Other fields stay, in the run policy as in the scheduling policy."""
    rendered = over("manifest-rich", clean_pod_policy="All", gang=True, restart_policy="Never", backoff_limit=1)

    assert rendered["spec"]["runPolicy"] == {
        "cleanPodPolicy": "All",
        "backoffLimit": 1,
        "schedulingPolicy": {"queue": "research", "minAvailable": 4},
    }
    roles = rendered["spec"]["pytorchReplicaSpecs"]
    assert {role["restartPolicy"] for role in roles.values()} == {"Never"}


def test_gang_over_a_manifest_can_be_switched_off() -> None:
    assert over("manifest-rich", gang=False)["spec"]["runPolicy"]["schedulingPolicy"] == {"queue": "research"}


def test_an_elastic_policy_over_a_manifest_replaces_only_what_it_names() -> None:
    policy = over("manifest-elastic", elastic_policy={"max_replicas": 9})["spec"]["elasticPolicy"]

    assert policy == {**recorded("manifest-elastic")["spec"]["elasticPolicy"], "maxReplicas": 9}


def test_fields_for_a_master_that_the_manifest_does_not_have_are_refused() -> None:
    """They would be ignored silently."""
    with pytest.raises(InvalidSpec, match="master: leave it out: the manifest has no Master"):
        over("manifest-elastic", master={"cpu": 1})


IN_QUEUE = {"kueue.x-k8s.io/queue-name": "team"}


@each_row(
    ("kind", "fields"),
    [
        ("PyTorchJob", {"queue_name": "team"}),
        ("PyTorchJob", {"labels": IN_QUEUE}),
        ("PyTorchJob", {"manifest": {**recorded("manifest-rich"), "metadata": {"labels": IN_QUEUE}}}),
        ("TrainJob", {"queue_name": "team"}),
        ("PyTorchJob", {}),
    ],
)
def test_a_job_of_kueue_is_not_created_suspended(kind: str, fields: dict[str, Any]) -> None:
    """Kueue resumes what it admits, and asks nobody; a job without a queue is in that of the installation."""
    job = TrainingJob.parse(**{"kind": kind, "name": "digits", "image": "i", "suspend": True, **fields})
    template = None if fields else job_template({"queue_name": "team"}, field="template")

    with pytest.raises(InvalidSpec, match="suspend: True is not allowed; allowed in a queue of Kueue"):
        kinds.named(kind).render(job, owner=OWNER, attempt=1, installation=Installation(template=template))
