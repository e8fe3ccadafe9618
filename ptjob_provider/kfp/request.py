"""Read the component's inputs and the settings of the step's task into a `Request`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

from ptjob_provider.core import kinds
from ptjob_provider.core.code.program import runs_function
from ptjob_provider.core.diagnosis import Limits
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.identity import stem_of
from ptjob_provider.core.kinds.pod_template import laid_over
from ptjob_provider.core.kinds.pytorchjob import API_VERSION, KIND
from ptjob_provider.core.spec import JOB_FIELDS, TrainingJob
from ptjob_provider.core.spec.limits import given_limits
from ptjob_provider.core.spec.on_finish import OnFinishAction
from ptjob_provider.core.spec.parsers import boolean, is_unset, seconds
from ptjob_provider.core.training_progress import line_pattern
from ptjob_provider.core.wire import literal
from ptjob_provider.kfp.artifacts import ModelArtifact
from ptjob_provider.kfp.claim_paths import OWN_CLAIM
from ptjob_provider.kfp.numbers import PREFIX, unmarked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.training_progress import LinePattern

_POD = {"tolerations": "tolerations", "node_selector": "nodeSelector", "affinity": "affinity"}
_CONTAINER = ("env", "resources")


def pod_template(config: Any, *, copies: bool = False) -> Manifest | None:
    """Return the settings of the step's task as a pod template; None if there are none.

    Args:
        config: a `dsl.TaskConfig`; its parts are in Kubernetes' format, or None.
        copies: whether the step has mounted the model's claim to copy the model; the job does not get this mount.
    """
    container = {name: unmarked(value) for name in _CONTAINER if (value := getattr(config, name, None))}
    pod = {word: unmarked(value) for name, word in _POD.items() if (value := getattr(config, name, None))}
    mounts = getattr(config, "volume_mounts", None) or ()
    if copies:
        mounts = [mount for mount in mounts if mount.get("mountPath") != OWN_CLAIM]
    if mounts:
        container["volumeMounts"] = list(mounts)
        pod["volumes"] = _mounted(getattr(config, "volumes", None) or (), mounts)
    if not container and not pod:
        return None
    return {"spec": {**pod, "containers": [{"name": kinds.DEFAULT.CONTAINER, **container}]}}


def _mounted(volumes: Sequence[Mapping[str, Any]], mounts: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return each volume of these mounts once: KFP's driver adds a volume, named after its claim, for every mount."""
    names = {mount["name"] for mount in mounts}
    return list({volume["name"]: volume for volume in volumes if volume.get("name") in names}.values())


IDS = ("pipeline_run_id", "pipeline_task_name", "pipeline_task_id")
"""Ids that together identify a step.

The last one is the id of the graph around the task, which differs between the iterations of a loop. The task's name
does not; and only the run's id differs between runs.
"""


@dataclass(frozen=True, kw_only=True)
class Request:
    """The component's inputs, parsed.

    Attributes:
        job: the training.
        ids: the step's identity, see IDS.
        timeout: seconds that this try waits before it stops the job; None: no limit.
        limits: when to stop a job that makes no progress.
        exact_name: keep the job's name literally.
        keep_running_pods: keep the replicas that the training operator leaves running after the job's end.
        on_finish_action: what to do with the job's object.
        model_artifact: how to pass on the model.
        progress: pattern of lines that say how far the training is; None: those that are built in.
        settings: the step's settings as a pod template for the job; None if there are none.
    """

    job: TrainingJob
    ids: Mapping[str, str]
    timeout: timedelta | None
    limits: Limits
    exact_name: bool
    keep_running_pods: bool
    on_finish_action: OnFinishAction
    model_artifact: ModelArtifact
    progress: LinePattern | None
    settings: Mapping[str, Any] | None

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Parse the inputs by name, with the values of their marks; None means that an input is missing.

        Raises:
            InvalidSpec: an input is invalid; the message names it.
        """
        ids = {name: _id(name, given.get(name)) for name in IDS}
        marked = {name: value for name, value in given.items() if name.startswith(PREFIX)}
        others = {name: value for name, value in given.items() if name not in {"task_config", *marked}}
        values = {name: with_ids(unmarked(value, marked, field=name), ids) for name, value in others.items()}
        if runs_function(values.get("command")):
            values["args"] = [literal(str(each)) for each in values.get("args") or ()]
        for name, value in values.items():
            check_placeholders(name, value)
        settings = pod_template(given.get("task_config"), copies=values.get("model_artifact") == ModelArtifact.COPY)
        job = _job(values, ids["pipeline_task_name"])
        return cls(job=job, ids=ids, settings=settings, **step_options(values))

    def template(self, installation: TrainingJob | None) -> TrainingJob | None:
        """Return the defaults for the job: the installation's template, overridden by the step's settings."""
        if self.settings is None:
            return installation
        under = installation or TrainingJob.parse(manifest={"apiVersion": API_VERSION, "kind": KIND})
        settings = {"metadata": {}, **laid_over(under.pod_template or {}, self.settings)}
        return replace(under, pod_template=settings)


def step_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs that are neither fields of the job nor ids, parsed, by their names in `Request`.

    Raises:
        InvalidSpec: an input is invalid; the message names it.
    """
    return {
        "timeout": _timeout(values.get("timeout")),
        "limits": Limits(**given_limits(values)),
        "exact_name": _switch("exact_name", values),
        "keep_running_pods": _switch("keep_running_pods", values),
        "on_finish_action": OnFinishAction.parse(values.get("on_finish_action") or OnFinishAction.KEEP_JOB),
        "model_artifact": ModelArtifact.parse(values.get("model_artifact") or ModelArtifact.REFERENCE),
        "progress": None if is_unset(values.get("progress")) else line_pattern("progress", values["progress"]),
    }


def _job(values: Mapping[str, Any], task_name: str) -> TrainingJob:
    fields = {name: values.get(name) for name in JOB_FIELDS}
    if is_unset(fields["name"]) and fields["manifest"] is None:
        fields["name"] = stem_of(task_name)
    if values.get("env_objects") is not None:
        if fields["env"] is not None:
            raise InvalidSpec.of("env_objects", "set", "leave it out: env is set")
        fields["env"] = values["env_objects"]
    return TrainingJob.parse(**fields)


def _id(name: str, value: Any) -> str:
    """Parse one id; refuse a placeholder that was not replaced, because it would be the same in every run."""
    if is_unset(value) or "{{" in str(value):
        raise InvalidSpec.of(
            name, value, f"allowed: the placeholder of Kubeflow Pipelines for it: {_PLACEHOLDERS[name][0]}"
        )
    return str(value)


def with_ids(value: Any, ids: Mapping[str, str]) -> Any:
    """Return the value with the ids in place of their placeholders, at any depth.

    Kubeflow Pipelines replaces a placeholder only if it is a whole input, not in `f"/data/{…_PLACEHOLDER}"`.
    """
    if isinstance(value, dict):
        return {key: with_ids(item, ids) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [with_ids(item, ids) for item in value]
    if isinstance(value, str):
        for name, text in ids.items():
            value = value.replace(_PLACEHOLDERS[name][1], text)
    return value


def check_placeholders(field: str, value: Any) -> None:
    """Check that no placeholder is left in the value: nothing would replace it, and the job would get it literally.

    Raises:
        InvalidSpec: the message names the field by its path, and the value.
    """
    if isinstance(value, dict):
        for key, item in value.items():
            check_placeholders(field, key)
            check_placeholders(f"{field}.{key}", item)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            check_placeholders(f"{field}[{index}]", item)
    elif isinstance(value, str) and "{{$." in value:
        names = ", ".join(name for name, _ in _PLACEHOLDERS.values())
        raise InvalidSpec.of(
            field, value, f"inside of texts, lists and maps these placeholders of Kubeflow Pipelines are known: {names}"
        )


_PLACEHOLDERS = {
    "pipeline_run_id": ("dsl.PIPELINE_JOB_ID_PLACEHOLDER", "{{$.pipeline_job_uuid}}"),
    "pipeline_task_name": ("dsl.PIPELINE_TASK_NAME_PLACEHOLDER", "{{$.pipeline_task_name}}"),
    "pipeline_task_id": ("dsl.PIPELINE_TASK_ID_PLACEHOLDER", "{{$.pipeline_task_uuid}}"),
}
"""Id → name and text of its placeholder."""


def _timeout(value: Any) -> timedelta | None:
    return None if is_unset(value) else timedelta(seconds=seconds("timeout", value))


def _switch(name: str, values: Mapping[str, Any]) -> bool:
    return False if is_unset(values.get(name)) else boolean(name, values[name])
