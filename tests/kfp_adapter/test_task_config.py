"""What an author sets on the step is set on the job's pods, under what the job says."""

from __future__ import annotations

from typing import Any

from kfp.dsl import TaskConfig

from ptjob_provider.core.kinds import pytorchjob
from ptjob_provider.core.spec import Installation, TrainingJob, job_template
from ptjob_provider.kfp.request import Request
from ptjob_provider.kfp.task_config import pod_template
from same_fields import OWNER

IDS = {"pipeline_run_id": "run-1", "pipeline_task_name": "train", "pipeline_task_id": "7"}
CLAIM = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
STEPS_CLAIM = {"name": "models", "persistentVolumeClaim": {"claimName": "models"}}


def pod(config: TaskConfig, installation: TrainingJob | None = None, **fields: Any) -> dict[str, Any]:
    """Return rank 0's pod of a job with these settings."""
    request = Request.parse({**IDS, "image": "digits", **fields, "task_config": config})
    template = Installation(template=request.template(installation))
    manifest = pytorchjob.render(request.job, owner=OWNER, attempt=1, installation=template).manifest
    found: dict[str, Any] = manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    return found


def test_a_step_without_settings_changes_nothing() -> None:
    """As on one machine, where kfp passes none on."""
    assert pod_template(TaskConfig()) is None
    assert pod_template(None) is None


def test_every_setting_is_the_jobs() -> None:
    """Resources, variables, placement and volumes; numbers are whole again."""
    found = pod(
        TaskConfig(
            resources={"limits": {"cpu": "4", "nvidia.com/gpu": 1.0}},
            env=[{"name": "A", "value": "b"}],
            tolerations=[{"key": "gpu", "operator": "Exists", "tolerationSeconds": 60.0}],
            node_selector={"gpu": "a100"},
            affinity={"podAntiAffinity": {}},
            volumes=[CLAIM],
            volume_mounts=[{"name": "data", "mountPath": "/data"}],
        )
    )

    (container,) = found["containers"]
    assert container["resources"]["limits"] == {"cpu": "4", "nvidia.com/gpu": 1}
    assert {"name": "A", "value": "b"} in container["env"]
    assert {"name": "data", "mountPath": "/data"} in container["volumeMounts"]
    assert CLAIM in found["volumes"]
    assert found["tolerations"] == [{"key": "gpu", "operator": "Exists", "tolerationSeconds": 60}]
    assert (found["nodeSelector"], found["affinity"]) == ({"gpu": "a100"}, {"podAntiAffinity": {}})


def test_the_jobs_own_words_win() -> None:
    """And those of the step win over the installation's."""
    installation = job_template({"pod_template": {"spec": {"nodeSelector": {"gpu": "old", "zone": "b"}}}}, field="t")
    config = TaskConfig(resources={"limits": {"cpu": "4"}}, node_selector={"gpu": "a100"})

    found = pod(config, installation, cpu="8")

    assert found["containers"][0]["resources"]["limits"]["cpu"] == "8"
    assert found["nodeSelector"] == {"gpu": "a100", "zone": "b"}


def test_what_the_step_mounts_for_itself_is_not_the_jobs() -> None:
    """It mounts the model's claim to copy from it."""
    config = TaskConfig(
        volumes=[CLAIM, STEPS_CLAIM],
        volume_mounts=[{"name": "data", "mountPath": "/data"}, {"name": "models", "mountPath": "/mnt/outputs/model"}],
    )

    found = pod(config)

    assert CLAIM in found["volumes"]
    assert STEPS_CLAIM not in found["volumes"]
    assert "/mnt/outputs/model" not in {mount["mountPath"] for mount in found["containers"][0]["volumeMounts"]}
