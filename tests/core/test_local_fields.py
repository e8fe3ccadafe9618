from __future__ import annotations

from typing import Any

import pytest

from ptjob_provider.core.errors import UnsupportedByBackend
from ptjob_provider.core.identity import TENSORBOARD_ANNOTATION
from ptjob_provider.core.local.supported_fields import announced
from rows import each_row


def job(pod: dict[str, Any] | None = None, container: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    first = {"name": "pytorch", "image": "i", "command": ["x"], **(container or {})}
    role = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": {"containers": [first], **(pod or {})}}}
    return {"metadata": {"name": "j"}, "spec": {"pytorchReplicaSpecs": {"Master": role, "Worker": role}, **spec}}


FULL = {
    "container": {
        "args": ["a"],
        "workingDir": "/w",
        "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
        "envFrom": [{"prefix": "p", "configMapRef": {"name": "m"}}],
        "volumeMounts": [{"name": "v", "mountPath": "/m", "subPath": "s", "readOnly": True}],
        "resources": {"limits": {"cpu": 1}, "requests": {"cpu": 1}},
        "ports": [{"containerPort": 23456}],
        "terminationMessagePolicy": "File",
    },
    "pod": {
        "initContainers": [{"name": "i", "image": "i", "command": ["x"]}],
        "terminationGracePeriodSeconds": 5,
        "volumes": [
            {"name": "v", "persistentVolumeClaim": {"claimName": "c", "readOnly": True}},
            {"name": "e", "emptyDir": {"medium": "Memory"}},
            {"name": "m", "configMap": {"name": "m", "items": [], "optional": True}},
            {"name": "s", "secret": {"secretName": "s"}},
        ],
    },
    "runPolicy": {"cleanPodPolicy": "All", "backoffLimit": 3, "managedBy": "kubeflow.org/training-operator"},
    "elasticPolicy": {"minReplicas": 1, "rdzvConf": [], "standalone": True},
    "nprocPerNode": "2",
}


def test_what_is_honoured_is_not_talked_about() -> None:
    """A job of such fields runs as it is."""
    assert announced(job(**FULL)) == []


@each_row("field", ["nodeSelector", "tolerations", "affinity", "priorityClassName", "schedulerName"])
def test_where_to_run_is_announced_once_for_all_roles(field: str) -> None:
    """With the places where it is written."""
    (text,) = announced(job(pod={field: "x"}))

    place = f"spec.pytorchReplicaSpecs.*.template.spec.{field}"
    assert text == f"{field} does not apply on this machine: it says where to run ({place})"


def test_a_field_of_one_role_is_announced_with_its_role() -> None:
    """Where the other has none."""
    one = job()
    one["spec"]["pytorchReplicaSpecs"]["Worker"] = job(pod={"hostIPC": True})["spec"]["pytorchReplicaSpecs"]["Worker"]

    (text,) = announced(one)

    assert text.endswith("(spec.pytorchReplicaSpecs.Worker.template.spec.hostIPC)")


def test_every_kind_of_place_can_hold_something_to_announce() -> None:
    """Labels, policies, containers, volumes."""
    found = announced(
        {
            **job(
                pod={"volumes": [{"name": "e", "emptyDir": {"sizeLimit": "1Gi"}}]},
                container={"imagePullPolicy": "Always", "securityContext": {"runAsUser": 1}},
                runPolicy={"schedulingPolicy": {"queue": "q"}},
            ),
            "metadata": {"name": "j", "labels": {"kueue.x-k8s.io/queue-name": "q", "team": "a"}},
        }
    )

    assert {text.split()[0] for text in found} == {
        "kueue.x-k8s.io/queue-name",
        "schedulingPolicy",
        "imagePullPolicy",
        "securityContext",
        "sizeLimit",
    }


def test_a_tensorboard_is_announced_with_what_shows_it() -> None:
    """Nobody would stop one that was started beside a job."""
    (text,) = announced({**job(), "metadata": {"name": "j", "annotations": {TENSORBOARD_ANNOTATION: "{}"}}})

    assert text.startswith("tensorboard does not apply on this machine: it is shown by `ptjob tensorboard`")


@each_row("nothing", [None, [], {}, "", False])
def test_an_empty_field_asks_for_nothing(nothing: object) -> None:
    """Generated manifests are full of them."""
    assert announced(job(pod={"nodeSelector": nothing, "hostAliases": nothing, "unheardOf": nothing})) == []


@each_row(
    ("change", "path"),
    [
        ({"pod": {"hostAliases": [{}]}}, r"spec\.pytorchReplicaSpecs\.Master\.template\.spec\.hostAliases"),
        ({"pod": {"unheardOf": 1}}, r"spec\.unheardOf: this field is not known"),
        (
            {"pod": {"initContainers": [{"name": "i", "restartPolicy": "Always"}]}},
            r"initContainers\[0\]\.restartPolicy",
        ),
        ({"pod": {"volumes": [{"name": "a"}, {"name": "v", "csi": {"driver": "d"}}]}}, r"volumes\[1\]\.csi"),
        ({"pod": {"volumes": [{"name": "v", "emptyDir": {"odd": 1}}]}}, r"volumes\[0\]\.emptyDir\.odd"),
        ({"container": {"lifecycle": {"preStop": {}}}}, r"containers\[0\]\.lifecycle"),
        ({"container": {"resources": {"claims": [{"name": "c"}]}}}, r"resources\.claims"),
        ({"container": {"volumeMounts": [{"name": "v", "subPathExpr": "$(A)"}]}}, r"volumeMounts\[0\]\.subPathExpr"),
        (
            {"container": {"env": [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}]}},
            r"env\[0\]",
        ),
        ({"container": {"envFrom": [{"odd": 1}]}}, r"envFrom\[0\]\.odd"),
        ({"runPolicy": {"odd": 1}}, r"spec\.runPolicy\.odd"),
        ({"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}, r"spec\.runPolicy\.managedBy.*multikueue"),
        ({"elasticPolicy": {"metrics": [{}]}}, r"spec\.elasticPolicy\.metrics"),
        ({"odd": 1}, r"spec\.odd"),
    ],
)
def test_what_would_have_to_be_ignored_is_refused(change: dict[str, Any], path: str) -> None:
    """With the field's path."""
    with pytest.raises(UnsupportedByBackend, match=path):
        announced(job(**change))
