"""Tests of passing a model to the next step: the claims that the driver mounts from a compiled pipeline.

kfp reads annotations as objects, not as strings.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kfp import dsl, kubernetes

from kfp_adapter.compiled import arrived, compile_pipeline, rank0
from kfp_adapter.driver_stand_in import Driven
from ptjob_provider.core.spec import job_template
from ptjob_provider.kfp.component import pytorchjob_op
from ptjob_provider.kfp.handover import model_path, mount_claim, mount_model
from ptjob_provider.kfp.request import Request
from rows import each_row

RUN = dsl.PIPELINE_JOB_ID_PLACEHOLDER
UPSTREAM = {
    "pytorchjob": {"parameters": {"model_claim": "models", "model_path": "run-1/m.pt"}, "artifacts": {}},
    "pytorchjob-2": {"parameters": {"model_claim": "old", "model_path": "best/m.pt"}, "artifacts": {}},
}


def consumer(define: Callable[..., Any], folder: Path, task: str = "pytorchjob-2") -> Driven:
    """Return a task of a pipeline whose earlier tasks have finished."""
    return Driven(pipeline=compile_pipeline(define, folder), task=task, upstream=UPSTREAM)


def job(driven: Driven) -> dict[str, Any]:
    """Return the pod spec of rank 0 of the job that a task submits."""
    return rank0(Request.parse(arrived(driven)))


def mounts(pod: dict[str, Any]) -> dict[str, str]:
    """Return the claims in the training container by mount path."""
    claims = {
        volume["name"]: volume["persistentVolumeClaim"]["claimName"]
        for volume in pod["volumes"]
        if "persistentVolumeClaim" in volume
    }
    return {
        each["mountPath"]: claims[each["name"]]
        for each in pod["containers"][0]["volumeMounts"]
        if each["name"] in claims
    }


def test_a_claim_need_not_be_known_when_the_pipeline_is_compiled(tmp_path: Path) -> None:
    """The mount path is named after the output that has the claim's name."""

    def pipeline(model: str = "pvc://models/m.pt") -> None:
        train = pytorchjob_op(image="digits", model=model)
        mount_model(pytorchjob_op(image="digits", args=[model_path(train)]), train)

    pod = job(consumer(pipeline, tmp_path))

    assert mounts(pod) == {"/mnt/outputs/_pytorchjob-model-claim": "models"}
    assert pod["containers"][0]["args"] == ["/mnt/outputs/_pytorchjob-model-claim/run-1/m.pt"]


def test_models_of_several_steps_can_be_mounted_in_one_task(tmp_path: Path) -> None:
    """Each claim has its own mount path; a claim that is already mounted is not mounted again."""

    def pipeline() -> None:
        new = pytorchjob_op(image="digits", model=f"pvc://models/{RUN}/m.pt")
        old = pytorchjob_op(image="digits", model="pvc://old/m.pt")
        compared = pytorchjob_op(image="digits", args=[model_path(new), model_path(old)])
        mount_claim(mount_model(mount_model(compared, new), old), "old")

    driven = consumer(pipeline, tmp_path, "pytorchjob-3")

    assert mounts(job(driven)) == {"/mnt/outputs/models": "models", "/mnt/outputs/old": "old"}
    assert job(driven)["containers"][0]["args"][0] == "/mnt/outputs/models/run-1/m.pt"
    assert len(driven.task_config()["volumeMounts"]) == 2


def test_a_step_that_copies_its_model_may_read_another_one(tmp_path: Path) -> None:
    """Also one in the same claim: the step mounts its own claim at a separate path, which the job's pods do not get."""

    def pipeline() -> None:
        first = pytorchjob_op(image="digits", model="pvc://models/first.pt")
        then = pytorchjob_op(
            image="digits", args=[model_path(first)], model="pvc://models/then.pt", model_artifact="copy"
        )
        mount_model(then, first)
        kubernetes.set_security_context(then, run_as_user=0)

    driven = consumer(pipeline, tmp_path)

    own = driven.on_pod()
    assert {mount["mountPath"] for mount in own["volumeMounts"]} == {"/mnt/own-claim", "/mnt/outputs/models"}
    assert own["securityContext"] == {"runAsUser": 0}
    seen = mounts(job(driven))
    assert seen["/mnt/outputs/models"] == "models"
    assert "/mnt/own-claim" not in seen
    assert [volume["name"] for volume in job(driven)["volumes"]].count("models") == 1


@each_row(("task", "place"), [("mount", "_claim"), ("mount-2", "data")])
def test_any_component_can_mount_a_claim_by_its_name_or_by_a_value(task: str, place: str, tmp_path: Path) -> None:
    """The claim is mounted in the own pod of a stock component."""

    @dsl.component(base_image="python:3.12")
    def mount() -> None:
        pass

    def pipeline(claim: str = "data") -> None:
        mount_claim(mount(), claim)
        mount_claim(mount(), "data")

    found = consumer(pipeline, tmp_path, task).on_pod()

    assert found["volumeMounts"] == [{"name": "data", "mountPath": f"/mnt/outputs/{place}"}]
    assert found["volumes"] == [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]


def test_every_setting_of_the_task_is_the_jobs(tmp_path: Path) -> None:
    """Settings that the author calls on the task apply to the job's pods, and not to the step's pod."""

    def pipeline() -> None:
        task = pytorchjob_op(image="digits").set_cpu_limit("4").set_memory_request("1Gi")
        task.set_accelerator_type("nvidia.com/gpu").set_accelerator_limit(2).set_env_variable("A", "b")
        kubernetes.use_secret_as_env(task, "hub", {"token": "TOKEN"})
        kubernetes.mount_pvc(task, "data", "/data")
        kubernetes.add_toleration(task, key="gpu", operator="Exists", toleration_seconds=60)
        kubernetes.add_node_selector(task, "gpu", "a100")
        kubernetes.add_node_affinity(task, match_expressions=[{"key": "zone", "operator": "In", "values": ["b"]}])

    driven = consumer(pipeline, tmp_path, "pytorchjob")

    pod = job(driven)
    (container,) = pod["containers"]
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert container["resources"] == {"requests": {"memory": "1Gi"}, "limits": {"cpu": "4", "nvidia.com/gpu": "2"}}
    assert {"name": "A", "value": "b"} in container["env"]
    assert [each["valueFrom"]["secretKeyRef"]["key"] for each in container["env"] if each["name"] == "TOKEN"] == [
        "token"
    ]
    assert mounts(pod) == {"/data": "data"}
    assert pod["tolerations"] == [{"key": "gpu", "operator": "Exists", "tolerationSeconds": 60}]
    assert pod["nodeSelector"] == {"gpu": "a100"}
    assert term["matchExpressions"] == [{"key": "zone", "operator": "In", "values": ["b"]}]
    assert driven.on_pod() == {}


def test_fields_of_the_job_win_over_those_of_its_step(tmp_path: Path) -> None:
    """The step's settings, in turn, override the installation's."""

    def pipeline() -> None:
        task = pytorchjob_op(image="digits", cpu="8").set_cpu_limit("4")
        kubernetes.add_node_selector(task, "gpu", "a100")

    installation = job_template({"pod_template": {"spec": {"nodeSelector": {"gpu": "old", "zone": "b"}}}}, field="t")

    found = rank0(Request.parse(arrived(consumer(pipeline, tmp_path, "pytorchjob"))), installation)

    assert found["containers"][0]["resources"]["limits"]["cpu"] == "8"
    assert found["nodeSelector"] == {"gpu": "a100", "zone": "b"}
