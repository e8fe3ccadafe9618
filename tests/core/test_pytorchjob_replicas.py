from __future__ import annotations

from ptjob_provider.core.kinds import PYTORCHJOB, Replica
from recorded import recorded


def test_the_master_is_rank_0_and_the_workers_follow() -> None:
    """Pods are named as the operator names them, and worker i has rank i + 1."""
    job = recorded("manifest-args-only")
    job["spec"]["pytorchReplicaSpecs"] = dict(reversed(job["spec"]["pytorchReplicaSpecs"].items()))
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 2

    assert PYTORCHJOB.replicas(job) == (
        Replica(name="digits-nccl-master-0", role="master", index=0, rank=0, gpus=1),
        Replica(name="digits-nccl-worker-0", role="worker", index=0, rank=1, gpus=1),
        Replica(name="digits-nccl-worker-1", role="worker", index=1, rank=2, gpus=1),
    )


def test_without_a_master_worker_0_is_rank_0() -> None:
    """An elastic job's ranks are its workers' indexes."""
    job = recorded("manifest-elastic")

    assert [(each.name, each.rank) for each in PYTORCHJOB.replicas(job)] == [
        ("digits-grows-worker-0", 0),
        ("digits-grows-worker-1", 1),
    ]


def test_a_worker_that_the_job_was_scaled_by_is_not_started_again() -> None:
    job = recorded("manifest-elastic")

    assert [PYTORCHJOB.is_restarted(job, f"digits-grows-worker-{index}") for index in (1, 2)] == [True, False]


def test_a_role_that_does_not_say_how_many_has_one_pod() -> None:
    """The operator's default is one."""
    job = recorded("manifest-elastic")
    del job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"]

    assert len(PYTORCHJOB.replicas(job)) == 1


def test_gpus_of_every_make_and_container_are_counted_over_all_pods() -> None:
    """Limits count, requests if there is no limit; resources that are no devices (memory, cores) do not."""
    job = recorded("manifest-args-only")
    roles = job["spec"]["pytorchReplicaSpecs"]
    roles["Master"]["template"]["spec"]["containers"] = [
        {"name": "pytorch", "resources": {"limits": {"amd.com/gpu": "2", "cpu": 8}, "requests": {"amd.com/gpu": "2"}}},
        {"name": "eval", "resources": {"requests": {"nvidia.com/mig-1g.5gb": 1, "aliyun.com/gpu-mem": 8}}},
        {"name": "sidecar"},
    ]
    roles["Worker"]["replicas"] = 3

    assert [each.gpus for each in PYTORCHJOB.replicas(job)] == [3, 1, 1, 1]
