"""The pod of a step as Kubeflow Pipelines 2.17 creates it from a compiled pipeline, with three stand-ins.

Its volumes, variables, command and restrictions match the workflow that KFP's compiler creates: `container.go`,
`common.go` and `security_context.go` of `backend/src/v2/compiler/argocompiler`. The driver's input and its patch of the
pod (claims, user) come from `kfp_adapter.driver_stand_in`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kfp_adapter.driver_stand_in import TASK, Driven, merged
from kfp_cluster.stock_role import RUNNER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.identity import Manifest

PROGRAMS = Path(__file__).parent / "in_pod"
PROGRAMS_MAP = "launcher-stand-in"
RUN_LABEL = "pipeline/runid"
NODE_NAME = "workflows.argoproj.io/node-name"
ANY_USER = 1000680000
"""User when the task sets none, as in clusters that assign a range of users to each namespace."""

SCRATCH = ("/gcs", "/s3", "/minio", "/.local", "/.cache", "/.config", "/var/run/argo")
LAUNCHER = "/kfp-launcher"
GRACE = 30


@dataclass(frozen=True, kw_only=True)
class Try:
    """One try of a step of a run.

    Attributes:
        run: ID of the run.
        graph: ID of the parent graph of the task.
        retry: Retry index that KFP gives the step. None: the task has no retries.
        number: Try number that Argo writes on the pod. None: Argo does not retry the node.
        alive: Seconds that the container continues to run after SIGTERM.
        task: Name of the task.
        parameters: Parameters of the run that differ from their defaults.
        upstream: Published outputs of other tasks, by task name.
    """

    run: str
    graph: str = "1"
    retry: int | None = None
    number: int | None = None
    alive: float = 1.0
    task: str = TASK
    parameters: Mapping[str, Any] = field(default_factory=dict)
    upstream: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def pod_name(self) -> str:
        """The pod's name; another try has the same name only if Argo retries it under that name."""
        number = self.retry if self.number is None else self.number
        return "-".join([self.run, self.graph, self.task, *([str(number)] if number is not None else [])])

    @property
    def node_name(self) -> str:
        """The name of the node in Argo."""
        return f"{self.run}.root.{self.task}.executor" + ("" if self.number is None else f"({self.number})")

    def driven(self, pipeline: Mapping[str, Any]) -> Driven:
        """Return the task as the driver handles it."""
        ids = {"task": self.task, "run": self.run, "graph": self.graph}
        return Driven(pipeline=pipeline, **ids, parameters=self.parameters, upstream=self.upstream)


def programs(namespace: str) -> Manifest:
    """Return a config map with the stand-ins; in Kubeflow an init container brings the real programs."""
    texts = {file.name: file.read_text() for file in PROGRAMS.glob("*.py")}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": PROGRAMS_MAP, "namespace": namespace},
        "data": texts,
    }


def step_pod(pipeline: Mapping[str, Any], attempt: Try, namespace: str, *, account: str = RUNNER) -> Manifest:
    """Return the pod of one try of a step, with a service account."""
    driven = attempt.driven(pipeline)
    patch = driven.on_pod()
    volumes = {path.strip("/.").replace("/", "-"): path for path in SCRATCH}
    mounts = [{"name": each, "mountPath": path} for each, path in volumes.items()]
    spec = {
        "serviceAccountName": account,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE,
        "containers": [
            {
                "name": "main",
                "image": driven.container["image"],
                "command": _command(driven, attempt.alive),
                "env": merged(_variables(attempt), patch.get("env", ()), "name"),
                "volumeMounts": merged(
                    [*mounts, {"name": "kfp-launcher", "mountPath": LAUNCHER}],
                    patch.get("volumeMounts", ()),
                    "mountPath",
                ),
                "securityContext": {
                    "readOnlyRootFilesystem": True,
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                    "seccompProfile": {"type": "RuntimeDefault"},
                    **patch.get("securityContext", {"runAsUser": ANY_USER, "runAsNonRoot": True}),
                },
            }
        ],
        "volumes": merged(
            [
                *({"name": each, "emptyDir": {}} for each in volumes),
                {"name": "kfp-launcher", "configMap": {"name": PROGRAMS_MAP}},
            ],
            patch.get("volumes", ()),
            "name",
        ),
    }
    metadata = {
        "name": attempt.pod_name,
        "namespace": namespace,
        "labels": {RUN_LABEL: attempt.run},
        "annotations": {NODE_NAME: attempt.node_name},
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _command(driven: Driven, alive: float) -> list[str]:
    emissary, launcher = (["python", f"{LAUNCHER}/{name}_stand_in.py"] for name in ("emissary", "launcher"))
    artifacts = [each for task in driven.upstream.values() for each in task["artifacts"].values()]
    given = {
        "--executor_input": driven.executor_input(),
        "--component_spec": driven.component,
        "--store": {each["uri"]: each["content"] for each in artifacts if each["content"] is not None},
    }
    options = [word for name, value in given.items() for word in (name, json.dumps(value))]
    return [*emissary, str(alive), *launcher, *options, "--", *driven.container["command"], *driven.container["args"]]


def _variables(attempt: Try) -> list[dict[str, Any]]:
    """Return the variables that KFP sets for every step."""
    fields = {"KFP_POD_NAME": "metadata.name", "KFP_POD_UID": "metadata.uid"}
    variables: list[dict[str, Any]] = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()
    ]
    return variables + ([{"name": "KFP_RETRY_INDEX", "value": str(attempt.retry)}] if attempt.retry is not None else [])
