"""TrainJobs that succeed, fail, wait and are deleted, on Kubeflow Trainer and JobSet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kubernetes_backend.failure import TRAINS, Act, Failure, deletes, shell
from kubernetes_backend.starts import after, quota
from kubernetes_backend.world import JOB

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster.kubectl import Kubectl
    from kubernetes_backend.world import World

TRAINING = shell(TRAINS)
SECOND_FAILS = shell(f"if [ $RANK = 1 ]; then echo step 7; echo the disk is full >&2; sleep 4; exit 3; fi; {TRAINS}")
RUNTIME = "TrainingRuntime/ours"


def runtime(restart_policy: str, backoff_limit: int, **meta: str) -> dict[str, Any]:
    """Return a runtime of the namespace with these rules for failed pods."""
    pod = {"restartPolicy": restart_policy, "containers": [{"name": "node", "image": "none"}]}
    node = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"backoffLimit": backoff_limit, "template": {"spec": pod}},
        },
    }
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": "ours", "labels": {"trainer.kubeflow.org/framework": "torch"}, **meta},
        "spec": {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": {"spec": {"replicatedJobs": [node]}}},
    }


def train(about: str, role: Mapping[str, Any], *, workers: int = 2, **more: Any) -> Failure:
    job = {"kind": "TrainJob", "workers": workers, "shared_memory": False, **role, **more.pop("job", {})}
    return Failure(about=about, job=job, **more)


def _both_run(world: World) -> bool:
    return world.runs("node-0-0") and world.runs("node-0-1")


def _resume(kubectl: Kubectl, namespace: str) -> None:
    kubectl("patch", "trainjob", JOB, "--namespace", namespace, "--type=merge", "--patch", '{"spec":{"suspend":false}}')


TRAINJOBS: dict[str, Failure] = {
    "trainjob-succeeded": train("Both nodes train to their end.", shell("echo epoch 1; sleep 4")),
    "trainjob-failed-node": train(
        "The second node ends with 3; the runtime starts nothing again.",
        SECOND_FAILS,
        job={"runtime": RUNTIME},
        before=(runtime("Never", 0),),
    ),
    "trainjob-backoff": train(
        "The second node fails until the Job's backoff limit, with which its pods are deleted.",
        SECOND_FAILS,
        job={"runtime": RUNTIME},
        before=(runtime("OnFailure", 1),),
    ),
    "trainjob-crash-loop": train(
        "The second node fails at each of its starts; nothing of it is in the job's conditions.",
        SECOND_FAILS,
        limits={"crash_loop_limit": 2},
        until=lambda world: world.restarts() >= 2,
        lasts=6,
    ),
    "trainjob-suspended": train(
        "The job is suspended, as a queue has it, and goes on when it is let.",
        shell("echo epoch 1; sleep 4"),
        job={"suspend": True},
        acts=(Act(when=lambda world: world.seconds > 10, do=_resume),),
    ),
    "trainjob-deleted": train(
        "Somebody deletes the job in mid-training.",
        TRAINING,
        acts=(Act(when=_both_run, do=deletes("trainjob", JOB)),),
        lasts=5,
    ),
    "trainjob-deadline": train(
        "The job is active longer than it may.", TRAINING, job={"active_deadline_seconds": 8}, lasts=5
    ),
    "trainjob-quota": train(
        "The namespace's quota has room for one of the two pods.",
        TRAINING,
        before=(quota(pods="1"),),
        limits={"queue_timeout": 20},
        **after(30),
    ),
    "trainjob-quota-jobs": train(
        "The namespace's quota has no room for a Job.",
        TRAINING,
        before=(quota(**{"count/jobs.batch": "0"}),),
        limits={"queue_timeout": 20},
        **after(30),
    ),
    "trainjob-image-missing": train(
        "The nodes' image cannot be pulled.",
        {**TRAINING, "image": "docker.io/library/absent:1"},
        limits={"start_timeout": 30},
        **after(60),
    ),
    "trainjob-unschedulable": train(
        "The nodes ask for GPUs that there are not; nothing ends that by default.",
        {**TRAINING, "gpus": 2},
        crowd="nodes",
        **after(15),
    ),
}
