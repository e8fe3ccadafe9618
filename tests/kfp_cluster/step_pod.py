"""The pod of a step as a run of Kubeflow Pipelines 2.17 makes it of a compiled pipeline, with two stand-ins in it.

Its volumes, variables and command are those of the workflow that KFP's compiler makes; the executor input is what the
driver hands over for constants and for the placeholders of a run. The settings that the driver takes from the task and
puts into `task_config` are the variables; no other one is taken here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kfp_adapter.compiled import inputs
from kfp_cluster.stock_role import RUNNER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.identity import Manifest

PROGRAMS = Path(__file__).parent / "in_pod"
PROGRAMS_MAP = "launcher-stand-in"
RUN_LABEL = "pipeline/runid"
TASK = "pytorchjob"
ANY_USER = 1000680000
"""As some clusters give each namespace users of its own."""

SCRATCH = ("/gcs", "/s3", "/minio", "/.local", "/.cache", "/.config", "/var/run/argo")
LAUNCHER = "/kfp-launcher"
ROOT = "minio://mlpipeline/v2/artifacts"
GRACE = 30


@dataclass(frozen=True, kw_only=True)
class Try:
    """One try of a step of a run.

    Attributes:
        run: the run's id.
        graph: the id of the graph around the task, which differs between the iterations of a loop.
        retry: which of the engine's retries this is. None: the task has no retries.
        alive: for how many seconds after SIGTERM the container goes on.
    """

    run: str
    graph: str = "1"
    retry: int | None = None
    alive: float = 1.0

    @property
    def pod_name(self) -> str:
        """The pod's name, which no other try has."""
        return "-".join([self.run, self.graph, "step", *([str(self.retry)] if self.retry is not None else [])])


def programs(namespace: str) -> Manifest:
    """Return the stand-ins as an object of the namespace; an init container brings the real ones."""
    texts = {file.name: file.read_text() for file in PROGRAMS.glob("*.py")}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": PROGRAMS_MAP, "namespace": namespace},
        "data": texts,
    }


def step_pod(pipeline: Mapping[str, Any], attempt: Try, namespace: str, *, account: str = RUNNER) -> Manifest:
    """Return the pod of one try of the pipeline's only step, under a service account."""
    (executor,) = pipeline["deploymentSpec"]["executors"].values()
    container, name = executor["container"], attempt.pod_name
    volumes = {path.strip("/.").replace("/", "-"): path for path in SCRATCH}
    mounts = [{"name": each, "mountPath": path} for each, path in volumes.items()]
    spec = {
        "serviceAccountName": account,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE,
        "containers": [
            {
                "name": "main",
                "image": container["image"],
                "command": _command(container, executor_input(pipeline, attempt), attempt.alive),
                "env": _variables(attempt),
                "volumeMounts": [*mounts, {"name": "kfp-launcher", "mountPath": LAUNCHER}],
                "securityContext": {
                    "runAsUser": ANY_USER,
                    "runAsNonRoot": True,
                    "readOnlyRootFilesystem": True,
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
            }
        ],
        "volumes": [
            *({"name": each, "emptyDir": {}} for each in volumes),
            {"name": "kfp-launcher", "configMap": {"name": PROGRAMS_MAP}},
        ],
    }
    metadata = {"name": name, "namespace": namespace, "labels": {RUN_LABEL: attempt.run}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def executor_input(pipeline: Mapping[str, Any], attempt: Try) -> dict[str, Any]:
    """Return what a driver hands over: the task's inputs, and places for the component's outputs."""
    ids = {
        "{{$.pipeline_job_uuid}}": attempt.run,
        "{{$.pipeline_task_name}}": TASK,
        "{{$.pipeline_task_uuid}}": attempt.graph,
    }
    given = {name: ids.get(str(value), value) for name, value in inputs(pipeline).items()}
    (component,) = pipeline["components"].values()
    (executor,) = pipeline["deploymentSpec"]["executors"].values()
    outputs = component["outputDefinitions"]
    folder = f"{ROOT}/{attempt.run}/{TASK}/{attempt.graph}"
    artifacts = {
        name: {"artifacts": [{"name": name, "type": each["artifactType"], "uri": f"{folder}/{name}", "metadata": {}}]}
        for name, each in outputs["artifacts"].items()
    }
    return {
        "inputs": {"parameterValues": {**given, "task_config": {"env": executor["container"].get("env", [])}}},
        "outputs": {
            "artifacts": artifacts,
            "parameters": {name: {"outputFile": f"/tmp/kfp/outputs/{name}"} for name in outputs["parameters"]},  # noqa: S108 - in a pod
            "outputFile": "/tmp/kfp_outputs/output_metadata.json",  # noqa: S108 - as above
        },
    }


def _command(container: Mapping[str, Any], given: Mapping[str, Any], alive: float) -> list[str]:
    emissary, launcher = (["python", f"{LAUNCHER}/{name}_stand_in.py"] for name in ("emissary", "launcher"))
    component = [*container["command"], *container["args"]]
    return [*emissary, str(alive), *launcher, "--executor_input", json.dumps(given), "--", *component]


def _variables(attempt: Try) -> list[dict[str, Any]]:
    """Return what KFP tells every step."""
    fields = {"KFP_POD_NAME": "metadata.name", "KFP_POD_UID": "metadata.uid"}
    told: list[dict[str, Any]] = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()
    ]
    return told + ([{"name": "KFP_RETRY_INDEX", "value": str(attempt.retry)}] if attempt.retry is not None else [])
