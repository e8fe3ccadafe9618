"""Tests of Kubernetes client objects as arguments, as users of KubernetesPodOperator write them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from airflow.providers.cncf.kubernetes.secret import Secret
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG
from airflow.serialization import serialized_objects
from kubernetes import client as k8s

from airflow_adapter.stand_ins import context
from ptjob_provider.airflow.operators import PyTorchJobOperator
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.manifest import load_manifest

if TYPE_CHECKING:
    from pathlib import Path

    from fakes import ScriptedBackend
    from ptjob_provider.core.identity import Manifest

OBJECTS: dict[str, Any] = {
    "env": [
        k8s.V1EnvVar(name="DAY", value="{{ ds }}"),
        k8s.V1EnvVar(
            name="TOKEN",
            value_from=k8s.V1EnvVarSource(secret_key_ref=k8s.V1SecretKeySelector(name="wandb", key="token")),
        ),
    ],
    "volumes": [
        k8s.V1Volume(
            name="data",
            persistent_volume_claim=k8s.V1PersistentVolumeClaimVolumeSource(claim_name="data-{{ ds }}"),
        ),
        "models:/models",
    ],
    "container_resources": k8s.V1ResourceRequirements(requests={"cpu": "1"}, limits={"cpu": "2", "memory": "4Gi"}),
}
TEMPLATE = k8s.V1PodTemplateSpec(
    metadata=k8s.V1ObjectMeta(labels={"team": "vision"}),
    spec=k8s.V1PodSpec(
        runtime_class_name="kata",
        containers=[k8s.V1Container(name="base", image="digits", env=[k8s.V1EnvVar(name="DAY", value="{{ ds }}")])],
    ),
)


def task(**arguments: Any) -> PyTorchJobOperator:
    dag = DAG("training", schedule=None)
    given = {"task_id": "train", "namespace": "team", "wait_for_completion": False, "dag": dag}
    return PyTorchJobOperator(**{**given, **arguments})


def submitted(backend: ScriptedBackend, **arguments: Any) -> Manifest:
    """Return the job of a task whose templates have been rendered."""
    made = task(**arguments)
    made.render_template_fields({"ds": "monday"})
    made.execute(context())
    (job,) = backend.jobs.values()
    return job


def master(job: Manifest) -> dict[str, Any]:
    spec: dict[str, Any] = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    return spec


def test_arguments_take_the_clients_objects_and_templates_inside_them(backend: ScriptedBackend) -> None:
    """The job has the wire format's field names, and all templates are rendered."""
    job = submitted(backend, image="digits", **OBJECTS)

    pod = master(job)
    (container,) = pod["containers"]
    assert {"name": "DAY", "value": "monday"} in container["env"]
    assert {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "wandb", "key": "token"}}} in container["env"]
    assert container["resources"] == {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "4Gi"}}
    assert {"name": "data", "persistentVolumeClaim": {"claimName": "data-monday"}} in pod["volumes"]
    assert {"name": "models", "persistentVolumeClaim": {"claimName": "models"}} in pod["volumes"]
    assert json.loads(json.dumps(job)) == job


def test_a_task_with_objects_can_be_shipped_to_the_scheduler() -> None:
    made = task(image="digits", pod_template=TEMPLATE, **OBJECTS)

    serializer = getattr(serialized_objects, "DagSerialization", None) or serialized_objects.SerializedDAG  # 3.1's
    shipped = serializer.to_dict(made.dag)

    assert "train" in json.dumps(shipped)


@pytest.mark.parametrize("as_pod", [False, True])
def test_a_pod_template_is_the_base_of_every_pod(backend: ScriptedBackend, *, as_pod: bool) -> None:
    """A pod written for KubernetesPodOperator names its training container `base`; typed fields override it."""
    pod = k8s.V1Pod(api_version="v1", kind="Pod", metadata=TEMPLATE.metadata, spec=TEMPLATE.spec)

    job = submitted(backend, pod_template=pod if as_pod else TEMPLATE, workers=2, env={"LEVEL": "debug"})

    for role in job["spec"]["pytorchReplicaSpecs"].values():
        template = role["template"]
        assert template["metadata"]["labels"]["team"] == "vision"
        assert template["spec"]["runtimeClassName"] == "kata"
        (container,) = template["spec"]["containers"]
        assert (container["name"], container["image"]) == ("pytorch", "digits")
        env = {each["name"]: each["value"] for each in container["env"]}
        assert (env["DAY"], env["LEVEL"]) == ("monday", "debug")


def test_a_pod_templates_path_from_the_root_is_the_workers(backend: ScriptedBackend, tmp_path: Path) -> None:
    """The machine that parses the DAG need not have the file."""
    path = tmp_path / "pod.yaml"
    made = task(pod_template_file=str(path))
    made.resolve_template_files()
    path.write_text("spec: {containers: [{name: pytorch, image: 'digits:{{ ds }}'}]}\n")

    made.render_template_fields({"ds": "monday"})
    made.execute(context())

    (job,) = backend.jobs.values()
    assert master(job)["containers"][0]["image"] == "digits:monday"


def test_a_manifest_may_hold_objects(backend: ScriptedBackend) -> None:
    template = k8s.V1PodTemplateSpec(
        spec=k8s.V1PodSpec(containers=[k8s.V1Container(name="pytorch", image="digits", args=["{{ ds }}"])])
    )
    manifest = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "digits"},
        "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": template}}},
    }

    job = submitted(backend, manifest=manifest)

    assert master(job)["containers"][0]["args"] == ["monday"]
    assert load_manifest(yaml.safe_dump(job))["kind"] == "PyTorchJob"


def test_secrets_and_config_maps_are_given_as_to_kubernetes_pod_operator(backend: ScriptedBackend) -> None:
    """As a variable, as all keys of a secret, and as files."""
    items = [k8s.V1KeyToPath(key="ca", path="ca.pem")]
    job = submitted(
        backend,
        image="digits",
        secrets=[
            Secret("env", "wandb_token", "wandb", "token"),
            Secret("env", None, "s3"),
            Secret("volume", "/etc/certificates", "tls", items=items),
        ],
        configmaps=["settings"],
    )

    pod = master(job)
    (container,) = pod["containers"]
    token = {"name": "WANDB_TOKEN", "valueFrom": {"secretKeyRef": {"name": "wandb", "key": "token"}}}
    assert token in container["env"]
    assert container["envFrom"] == [{"configMapRef": {"name": "settings"}}, {"secretRef": {"name": "s3"}}]
    (volume,) = (each for each in pod["volumes"] if "secret" in each)
    assert volume["secret"] == {"secretName": "tls", "items": [{"key": "ca", "path": "ca.pem"}]}
    mount = {"name": volume["name"], "mountPath": "/etc/certificates", "readOnly": True}
    assert mount in container["volumeMounts"]


def test_secrets_do_not_make_a_retry_look_changed(backend: ScriptedBackend) -> None:
    """KubernetesPodOperator gives their volumes random names; ours are always the same."""
    given, arguments = context(), {"image": "digits", "secrets": [Secret("volume", "/etc/tls", "tls")]}

    first = task(**arguments).execute(given)
    again = task(**arguments).execute(given)

    assert first == again


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"secrets": ["wandb"]}, r"secrets\[0\]: 'wandb'.*Secret of airflow"),
        ({"env_from": [{"secretReff": {"name": "a"}}]}, r"env_from\[0\].secretReff.*did you mean"),
        ({"pod_template": {"spec": {"containers": [{"env": [{"value": "a"}]}]}}}, r"pod_template.spec.*env\[0\].name"),
    ],
)
def test_an_invalid_kubernetes_object_is_refused_by_its_path(
    backend: ScriptedBackend, arguments: dict[str, Any], said: str
) -> None:
    """At parse time, or when the whole job is known; always before a job is created."""
    with pytest.raises((InvalidSpec, AirflowFailException), match=said):
        submitted(backend, image="digits", **arguments)

    assert not backend.created
