"""Short outlines of compiled components and pipelines: the parts that users rely on. See `golden/outlines.yaml`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

GIVEN_TO_ALL = {"pipeline_run_id", "pipeline_task_id", "pipeline_task_name"}


def outline(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs, outputs, tasks and containers of a specification; for our own step only the image."""
    executors = spec["deploymentSpec"]["executors"]
    platform = spec["platforms"].get("kubernetes", {}).get("deploymentSpec", {}).get("executors", {})
    found = {
        "inputs": _inputs(spec["root"]),
        "outputs": _outputs(spec["root"]),
        "tasks": dict(_tasks(spec, spec["root"], "")),
        "containers": {name: _container(each["container"]) for name, each in executors.items()},
        "kubernetes": platform,
    }
    return {name: part for name, part in found.items() if part}


def _inputs(component: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the names of the inputs, grouped by type and default; required inputs are grouped by type alone."""
    groups: dict[str, list[str]] = {}
    for name, each in component.get("inputDefinitions", {}).get("parameters", {}).items():
        default = (
            f" = {each['defaultValue']}" if "defaultValue" in each else " = none" if each.get("isOptional") else ""
        )
        described = "" if each.get("description") or name == "task_config" else ", not described"
        groups.setdefault(f"{each['parameterType']}{default}{described}", []).append(name)
    return groups


def _outputs(component: Mapping[str, Any]) -> dict[str, str]:
    found = component.get("outputDefinitions", {})
    values = {name: each["parameterType"] for name, each in found.get("parameters", {}).items()}
    artifacts = {name: each["artifactType"]["schemaTitle"] for name, each in found.get("artifacts", {}).items()}
    return {**values, **artifacts}


def _tasks(spec: Mapping[str, Any], component: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    """Yield each task with its inputs; the name of a task in a condition or loop has its parent's name as a prefix."""
    for name, task in component.get("dag", {}).get("tasks", {}).items():
        settings = {
            key: task[key]
            for key in ("cachingOptions", "dependentTasks", "retryPolicy", "triggerPolicy", "parameterIterator")
            if task.get(key)
        }
        given = {
            key: _source(each)
            for kind in ("parameters", "artifacts")
            for key, each in task.get("inputs", {}).get(kind, {}).items()
            if key not in GIVEN_TO_ALL
        }
        is_the_component = path == "" and spec["pipelineInfo"]["name"] == name
        yield f"{path}{name}", settings if is_the_component else {**settings, "given": given}
        yield from _tasks(spec, spec["components"][task["componentRef"]["name"]], f"{path}{name}/")


def _source(given: Mapping[str, Any]) -> Any:
    """Return a constant as it is, or the source of a value that is not constant."""
    if "runtimeValue" in given:
        return given["runtimeValue"]["constant"]
    if where := given.get("taskOutputParameter") or given.get("taskOutputArtifact"):
        return f"<- {where['producerTask']}.{where.get('outputParameterKey') or where['outputArtifactKey']}"
    return f"<- {given.get('componentInputParameter') or given.get('componentInputArtifact')}"


def _container(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return a container without the command, which has the component's program and kfp's start-up code."""
    program = container["command"][-1]
    is_ours = "from ptjob_provider.kfp.step import run" in program and "return run(given)" in program
    kept = {key: container[key] for key in ("image", "args", "env", "resources") if key in container}
    return {**kept, "runs our step": True} if is_ours else kept
