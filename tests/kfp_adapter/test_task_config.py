"""Tests of settings on the step's task, which apply to the job's pods with lower priority than the job's own fields."""

from __future__ import annotations

from typing import Any

from kfp.dsl import TaskConfig

from kfp_adapter.compiled import IDS, rank0
from ptjob_provider.core.spec import TrainingJob, job_template
from ptjob_provider.kfp.request import Request, pod_template

CLAIM = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
OWN = {"name": "models", "persistentVolumeClaim": {"claimName": "models"}}


def pod(config: TaskConfig, installation: TrainingJob | None = None, **fields: Any) -> dict[str, Any]:
    """Return the pod spec of rank 0 of a job with these settings."""
    return rank0(Request.parse({**IDS, "image": "digits", **fields, "task_config": config}), installation)


def test_a_step_without_settings_changes_nothing() -> None:
    """As with kfp.local, which passes no settings."""
    assert pod_template(TaskConfig()) is None
    assert pod_template(None) is None


def test_fields_of_the_job_win_over_those_of_its_step() -> None:
    """The step's settings, in turn, override the installation's."""
    installation = job_template({"pod_template": {"spec": {"nodeSelector": {"gpu": "old", "zone": "b"}}}}, field="t")
    config = TaskConfig(resources={"limits": {"cpu": "4"}}, node_selector={"gpu": "a100"})

    found = pod(config, installation, cpu="8")

    assert found["containers"][0]["resources"]["limits"]["cpu"] == "8"
    assert found["nodeSelector"] == {"gpu": "a100", "zone": "b"}


def test_the_claim_that_a_step_mounts_to_copy_is_not_mounted_in_the_job() -> None:
    """Only the step's own mount is left out: the job may mount the same claim at another path."""
    mounts = [{"name": "data", "mountPath": "/data"}, {"name": "models", "mountPath": "/mnt/own-claim"}]
    config = TaskConfig(volumes=[CLAIM, OWN], volume_mounts=mounts)

    copying, other = pod(config, model_artifact="copy"), pod(config)

    assert OWN not in copying["volumes"]
    assert [mount["mountPath"] for mount in copying["containers"][0]["volumeMounts"]][:1] == ["/data"]
    assert "/mnt/own-claim" in {mount["mountPath"] for mount in other["containers"][0]["volumeMounts"]}
