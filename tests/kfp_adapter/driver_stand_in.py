"""Stand-in for Kubeflow's driver: computes a task's executor input and pod settings from a compiled pipeline.

It follows the source of Kubeflow Pipelines 2.17, `backend/src/v2/driver`:

    inputs                    `resolveInputs`, `resolveInputParameter` (resolve.go)
    output locations          `provisionOutputs` (driver.go)
    settings of the task      `getTaskConfigOptions`, `initPodSpecPatch` (driver.go), `extendPodSpecPatch`,
                              `makeVolumeMountPatch` (k8s.go)
    settings as an input      `Container` (container.go)

Supports tasks of the root graph only. Not supported: JSON forms of settings, config maps, optional secrets and secrets
as files, ephemeral and empty volumes, sub-paths, preferred affinity and affinity for fields, image pull secrets,
proxies, workspaces, model cars, the artifact `executor-logs`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ROOT = "minio://mlpipeline/v2/artifacts"
TASK = "pytorchjob"
FIELDS = (
    "RESOURCES",
    "ENV",
    "KUBERNETES_AFFINITY",
    "KUBERNETES_TOLERATIONS",
    "KUBERNETES_NODE_SELECTOR",
    "KUBERNETES_VOLUMES",
)
_QUANTITIES = {
    "requests": {"cpu": "resourceCpuRequest", "memory": "resourceMemoryRequest"},
    "limits": {"cpu": "resourceCpuLimit", "memory": "resourceMemoryLimit"},
}


@dataclass(frozen=True, kw_only=True)
class Driven:
    """A task of a run.

    Attributes:
        pipeline: Specification as returned by `compiled.compile_pipeline`.
        task: Name of the task.
        run: ID of the run.
        graph: ID of the parent graph.
        parameters: Parameters of the run that differ from their defaults.
        upstream: Outputs of other tasks by task name: `parameters`, and `artifacts` with `uri` and `metadata`.
        place: Directory of the outputs in the store; the driver generates a new one each time.
    """

    pipeline: Mapping[str, Any]
    task: str = TASK
    run: str = "run-1"
    graph: str = "7"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    upstream: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    place: str = field(default_factory=lambda: str(uuid4()))

    @property
    def component(self) -> Mapping[str, Any]:
        """The specification of the task's component."""
        found: Mapping[str, Any] = self.pipeline["components"][self._spec["componentRef"]["name"]]
        return found

    @property
    def container(self) -> Mapping[str, Any]:
        """The image, command, arguments, variables and resources of the task."""
        found: Mapping[str, Any] = self.pipeline["deploymentSpec"]["executors"][self.component["executorLabel"]]
        return dict(found["container"])

    def executor_input(self) -> dict[str, Any]:
        """Return the input that the driver passes to the launcher."""
        asked = self._spec.get("inputs", {})
        parameters = {name: self._value(spec) for name, spec in asked.get("parameters", {}).items()}
        values = {name: value for name, value in parameters.items() if value is not None}
        artifacts = {name: self._artifact(name, spec) for name, spec in asked.get("artifacts", {}).items()}
        for name, spec in self._definitions("input", "parameters").items():
            if spec["parameterType"] == "TASK_CONFIG":
                values[name] = self.task_config()
        return {"inputs": {"parameterValues": values, "artifacts": artifacts}, "outputs": self._outputs()}

    def task_config(self) -> dict[str, Any]:
        """Return the settings that the component passes through to the pods that it creates; unset ones are null."""
        passed = {each["field"] for each in self.component.get("taskConfigPassthroughs", ())}
        return {name: part if each in passed else None for each, name, part in self._settings()}

    def on_pod(self) -> dict[str, Any]:
        """Return the settings of the task's own pod, by the same names; `securityContext` is the container's."""
        passthroughs = self.component.get("taskConfigPassthroughs", ())
        applied = dict.fromkeys(FIELDS, True)
        applied |= {each["field"]: each.get("applyToTask", False) for each in passthroughs}
        found = {name: part for each, name, part in self._settings() if applied[each] and part}
        context = self._platform.get("securityContext")
        return found | ({"securityContext": _whole(context)} if context else {})

    def _settings(self) -> Iterator[tuple[str, str, Any]]:
        mounts, volumes = self._volumes()
        env = [dict(each) for each in self.container.get("env", ())]
        yield "RESOURCES", "resources", self._resources()
        yield "ENV", "env", [*env, *self._secret_env()] or None
        yield "KUBERNETES_AFFINITY", "affinity", self._affinity()
        yield "KUBERNETES_TOLERATIONS", "tolerations", [*map(_whole, self._platform.get("tolerations", ()))] or None
        yield "KUBERNETES_NODE_SELECTOR", "nodeSelector", self._platform.get("nodeSelector", {}).get("labels")
        yield "KUBERNETES_VOLUMES", "volumes", volumes or None
        yield "KUBERNETES_VOLUMES", "volumeMounts", mounts or None

    def _resources(self) -> dict[str, Any]:
        asked = self.container.get("resources", {})
        found = {
            kind: {name: asked[word] for name, word in words.items() if word in asked}
            for kind, words in _QUANTITIES.items()
        }
        accelerator = asked.get("accelerator", {})
        if "resourceType" in accelerator and "resourceCount" in accelerator:
            found["limits"][accelerator["resourceType"]] = accelerator["resourceCount"]
        return {kind: parts for kind, parts in found.items() if parts}

    def _secret_env(self) -> Iterator[dict[str, Any]]:
        for each in self._platform.get("secretAsEnv", ()):
            name = self._value(each["secretNameParameter"])
            for pair in each["keyToEnv"]:
                reference = {"name": name, "key": pair["secretKey"]}
                yield {"name": pair["envVar"], "valueFrom": {"secretKeyRef": reference}}

    def _affinity(self) -> dict[str, Any] | None:
        terms = [{"matchExpressions": term["matchExpressions"]} for term in self._platform.get("nodeAffinity", ())]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        return {"nodeAffinity": required} if terms else None

    def _volumes(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return mounts and volumes: one volume per mount, named after its claim, even if a claim is mounted twice."""
        mounts, volumes = [], []
        for each in self._platform.get("pvcMount", ()):
            claim = self._value(each["pvcNameParameter"])
            if not isinstance(claim, str) or not claim:
                raise ValueError(f"failed to resolve pvc name: expected a non-empty string: {claim!r}")
            mounts.append({"name": claim, "mountPath": each["mountPath"]})
            volumes.append({"name": claim, "persistentVolumeClaim": {"claimName": claim}})
        return mounts, volumes

    def _value(self, spec: Mapping[str, Any]) -> Any:
        if "runtimeValue" in spec:
            constant = spec["runtimeValue"]["constant"]
            return self._ids.get(constant, constant) if isinstance(constant, str) else constant
        if "taskOutputParameter" in spec:
            wanted = spec["taskOutputParameter"]
            return self.upstream[wanted["producerTask"]]["parameters"][wanted["outputParameterKey"]]
        name = spec["componentInputParameter"]
        if name in self.parameters:
            return self.parameters[name]
        return self.pipeline["root"]["inputDefinitions"]["parameters"][name]["defaultValue"]

    def _artifact(self, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
        wanted = spec["taskOutputArtifact"]
        found = self.upstream[wanted["producerTask"]]["artifacts"][wanted["outputArtifactKey"]]
        kind = {"instanceSchema": ""}  # the driver reads it from the metadata store, which has no title of the schema
        artifact = {"name": name, "type": kind, "uri": found["uri"], "metadata": found["metadata"]}
        return {"artifacts": [artifact]}

    def _outputs(self) -> dict[str, Any]:
        folder = f"{ROOT}/{self.pipeline['pipelineInfo']['name']}/{self.run}/{self.task}/{self.place}"
        artifacts = {
            name: {"artifacts": [{"name": name, "type": each["artifactType"], "uri": f"{folder}/{name}"}]}
            for name, each in self._definitions("output", "artifacts").items()
        }
        files = {
            name: {"outputFile": f"/tmp/kfp/outputs/{name}"}  # noqa: S108 - in a pod
            for name in self._definitions("output", "parameters")
        }
        output_file = f"/minio/{folder.removeprefix('minio://')}/output_metadata.json"
        return {"artifacts": artifacts, "parameters": files, "outputFile": output_file}

    def _definitions(self, which: str, kind: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.component.get(f"{which}Definitions", {}).get(kind, {})
        return found

    @property
    def _spec(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.pipeline["root"]["dag"]["tasks"][self.task]
        return found

    @property
    def _platform(self) -> Mapping[str, Any]:
        executors = self.pipeline["platforms"].get("kubernetes", {}).get("deploymentSpec", {}).get("executors", {})
        found: Mapping[str, Any] = executors.get(self.component["executorLabel"], {})
        return found

    @property
    def _ids(self) -> dict[str, str]:
        """Placeholders of the run that the driver replaces when one is a whole input."""
        return {
            "{{$.pipeline_job_uuid}}": self.run,
            "{{$.pipeline_task_name}}": self.task,
            "{{$.pipeline_task_uuid}}": self.graph,
        }


def merged(lower: Iterable[Mapping[str, Any]], upper: Iterable[Mapping[str, Any]], key: str) -> list[dict[str, Any]]:
    """Merge two lists as Argo merges the driver's patch into the pod: items with the same key become one."""
    found: dict[str, dict[str, Any]] = {}
    for item in (*lower, *upper):
        found[item[key]] = found.get(item[key], {}) | dict(item)
    return list(found.values())


def _whole(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message with its 64-bit integers as numbers: a compiled pipeline has them as strings."""
    return {
        name: int(part) if name in {"runAsUser", "runAsGroup", "tolerationSeconds"} else part
        for name, part in message.items()
    }
