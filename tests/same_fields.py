"""One non-default value for every field of a training job, as authors of DAGs and pipelines write it.

The operator and the component have to create the same job from each. They have separate environments, so each is
compared with the job that the core creates.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ptjob_provider.core import kinds
from ptjob_provider.core.identity import Owner
from ptjob_provider.core.spec import TrainingJob

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.identity import Manifest

OWNER = Owner(instance="test", ids={"task": "same"}, labels={})
BASE: Mapping[str, Any] = {"name": "digits", "image": "digits:1", "workers": 2}
PYTORCHJOB = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "own"},
    "spec": {
        "runPolicy": {"backoffLimit": 3},
        "pytorchReplicaSpecs": {
            "Master": {
                "replicas": 1,
                "template": {"spec": {"containers": [{"name": "pytorch", "image": "own:1", "args": ["1", "2.0"]}]}},
            }
        },
    },
}

FIELDS: Mapping[str, Mapping[str, Any]] = {
    "name": {"name": "other"},
    "namespace": {"namespace": "team"},
    "image": {"image": "other:2"},
    "image_pull_policy": {"image_pull_policy": "Always"},
    "command": {"command": ["torchrun", "train.py"]},
    "args": {"args": ["--epochs", 5, "--lr", 1.0, "--eps=1e-05", "", 0.1]},
    "working_dir": {"working_dir": "/code"},
    "workers": {"workers": 4},
    "nproc_per_node": {"nproc_per_node": 2},
    "gpus": {"gpus": 8},
    "gpu_resource": {"gpus": 1, "gpu_resource": "amd.com/gpu"},
    "cpu": {"cpu": 0.5},
    "memory": {"memory": "16Gi"},
    "container_resources": {"container_resources": {"limits": {"rdma/hca": 1}, "requests": {"memory": "1Gi"}}},
    "shared_memory": {"shared_memory": False},
    "env": {"env": {"LR": 1.0, "N": 3, "TOKEN": {"secret": "hub", "key": "token", "optional": True}}},
    "env_from": {"env_from": [{"secret": "hub"}, {"config_map": "team"}]},
    "volumes": {"volumes": ["data/digits:/data:ro", {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}]},
    "volume_mounts": {
        "volumes": [{"name": "tmp", "emptyDir": {}}],
        "volume_mounts": [{"name": "tmp", "mountPath": "/scratch"}],
    },
    "code": {"code": {"git": "https://git.example/team/mnist.git", "branch": "main", "depth": 0, "secret": "git"}},
    "restart_policy": {"restart_policy": "ExitCode"},
    "clean_pod_policy": {"clean_pod_policy": "None"},
    "backoff_limit": {"backoff_limit": 2},
    "active_deadline_seconds": {"active_deadline_seconds": timedelta(hours=1)},
    "ttl_seconds_after_finished": {"ttl_seconds_after_finished": 60},
    "suspend": {"suspend": True},
    "elastic_policy": {"elastic_policy": {"min_replicas": 1, "max_replicas": 3, "rdzv_conf": {"timeout": 30}}},
    "service_account_name": {"service_account_name": "trainer"},
    "image_pull_secrets": {"image_pull_secrets": ["registry"]},
    "node_selector": {"node_selector": {"gpu": "a100"}},
    "tolerations": {"tolerations": [{"key": "gpu", "operator": "Exists", "tolerationSeconds": 60}]},
    "affinity": {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}},
    "priority_class_name": {"priority_class_name": "high"},
    "scheduler_name": {"scheduler_name": "volcano"},
    "queue_name": {"queue_name": "team-a"},
    "gang": {"gang": True},
    "host_network": {"host_network": True},
    "security_context": {"security_context": {"runAsUser": 1000, "runAsNonRoot": True}},
    "container_security_context": {"container_security_context": {"allowPrivilegeEscalation": False}},
    "init_containers": {"init_containers": [{"name": "wait", "image": "busybox", "args": ["1"]}]},
    "termination_grace_period_seconds": {"termination_grace_period_seconds": 120},
    "labels": {"labels": {"team": "vision"}},
    "annotations": {"annotations": {"sidecar.istio.io/inject": "true"}},
    "master": {"master": {"cpu": "10", "env": {"ROLE": "chief"}}},
    "worker": {"worker": {"gpus": 2, "node_selector": {"zone": "b"}}},
    "pod_template": {"pod_template": {"spec": {"containers": [{"name": "pytorch"}], "dnsPolicy": "Default"}}},
    "model": {"model": "pvc://models/m.pt"},
    "tfevents": {"tfevents": "pvc://logs/run"},
    "checkpoints": {"checkpoints": "pvc://models/checkpoints"},
    "tensorboard": {"tfevents": "pvc://logs/run", "tensorboard": True},
    "kind": {"kind": "TrainJob"},
    "runtime": {"kind": "TrainJob", "runtime": "TrainingRuntime/mine"},
    "manifest": {"manifest": PYTORCHJOB, "name": None, "image": None, "workers": None},
}


def arguments(field: str) -> dict[str, Any]:
    """Return the arguments that set a field to its non-default value."""
    return {name: value for name, value in {**BASE, **FIELDS[field]}.items() if value is not None}


def rendered(job: TrainingJob) -> Manifest:
    """Return the job's manifest."""
    return kinds.requested_kind(job).render(job, owner=OWNER, attempt=1).manifest


def expected(field: str) -> Manifest:
    """Return the manifest that the core creates from the field's arguments."""
    return rendered(TrainingJob.parse(**arguments(field)))
