"""The runtimes that Kubeflow Trainer 2.3 ships, as far as jobs depend on them: policy and replicated jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.identity import Manifest

STEP_LABEL = "trainer.kubeflow.org/trainjob-ancestor-step"
INITIALIZERS = ("dataset-initializer", "model-initializer")

MPI = {"mpi": {"numProcPerNode": 1, "mpiImplementation": "OpenMPI", "runLauncherAsNode": True}}
"""Policy of the runtimes with a launcher, as far as the number of pods depends on it."""

SHIPPED: Mapping[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "torch-distributed": ({"torch": {}}, ("node",)),
    "deepspeed-distributed": (MPI, ("node", "launcher")),
    "mlx-distributed": (MPI, ("node", "launcher")),
    "jax-distributed": ({"jax": {}}, ("node",)),
    "xgboost-distributed": ({"xgboost": {}}, ("node",)),
    "torchtune-llama3.2-1b": ({"torch": {}}, (*INITIALIZERS, "node")),
    "torchtune-llama3.2-3b": ({"torch": {}}, (*INITIALIZERS, "node")),
    "torchtune-qwen2.5-1.5b": ({"torch": {}}, (*INITIALIZERS, "node")),
    "torch-distributed-with-cache": ({"torch": {}}, ("dataset-initializer", "node")),
}
"""Name → policy, and names of the replicated jobs in their order."""


def shipped(name: str) -> Manifest:
    """Return a runtime that Trainer ships, by the table."""
    policy, steps = SHIPPED[name]
    return runtime(*steps, name=name, **policy)


def runtime(*steps: str, name: str = "own", trains: str = "", inits: tuple[str, ...] = (), **policy: Any) -> Manifest:
    """Return a runtime with these replicated jobs.

    Args:
        steps: their names; an initializer has its own name as label.
        name: the runtime's name.
        trains: the one with the label `trainer`; "": launcher or node.
        inits: names of the init containers in the pods of those that train.
        policy: the `mlPolicy`, beside the number of nodes.
    """
    trainer = trains or ("launcher" if "launcher" in steps else "node")
    jobs = [_job(step, label="trainer" if step == trainer else step, inits=inits) for step in steps]
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": name},
        "spec": {"mlPolicy": {"numNodes": 1, **policy}, "template": {"spec": {"replicatedJobs": jobs}}},
    }


def _job(step: str, *, label: str, inits: tuple[str, ...]) -> Manifest:
    is_labelled = label in {"trainer", *INITIALIZERS}
    container = step if step in INITIALIZERS else "node"
    pod = {"containers": [{"name": container, "image": "i"}], "initContainers": [{"name": each} for each in inits]}
    meta = {"metadata": {"labels": {STEP_LABEL: label}}} if is_labelled else {}
    return {"name": step, "template": {**meta, "spec": {"template": {"spec": pod}}}}
