"""Tests of admission on one machine: each field is applied, announced or refused before anything starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ptjob_provider.core.errors import InvalidSpec, UnsupportedByBackend
from ptjob_provider.core.identity import TENSORBOARD_ANNOTATION
from ptjob_provider.core.local.admission import admit
from ptjob_provider.core.local.config import LocalConfig
from rows import each_row

if TYPE_CHECKING:
    from pathlib import Path

    from ptjob_provider.core.local.config import Setup

UID = "00000000-0000-0000-0000-000000000001"


def job(
    container: dict[str, Any] | None = None, pod: dict[str, Any] | None = None, *, workers: int = 0, **spec: Any
) -> dict[str, Any]:
    first = {"name": "pytorch", "image": "i:1", "command": ["x"], **(container or {})}
    role = {"restartPolicy": "Never", "template": {"spec": {"containers": [first], **(pod or {})}}}
    roles = {"Master": role, **({"Worker": {**role, "replicas": workers}} if workers else {})}
    meta = {"name": "j", "namespace": "ns", "uid": UID, "creationTimestamp": "2026-11-20T10:00:00Z"}
    return {"apiVersion": "a", "kind": "k", "metadata": meta, "spec": {"pytorchReplicaSpecs": roles, **spec}}


def admitted(asked: dict[str, Any], root: Path, **config: Any) -> tuple[Setup, list[str]]:
    """Return the setup and the announcements."""
    setup, events = admit(asked, LocalConfig(root=root, **config))
    return setup, [event["message"] for event in events]


def variable(option: str) -> str:
    """Return the name of an option of a step."""
    return f"PTJOB_{option.upper()}"


def admit_pod(pod: dict[str, Any], *, root: Path) -> None:
    """Admit a job of the namespace `ns` with this pod."""
    asked = job()
    asked["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"] = pod
    stores = {"secrets": {"s": {"k": "v", "l": "w"}, "t": {"k": "x"}}, "config_maps": {"m": {"k": "v"}}}
    admit(asked, LocalConfig(root=root, **stores))


def limits(**resources: Any) -> dict[str, Any]:
    return {"resources": {"limits": {name.replace("__", "/").replace("_", "."): n for name, n in resources.items()}}}


def pod(container: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {"containers": [{"name": "pytorch", "image": "i", "command": ["x"], **(container or {})}], **spec}


def claim(name: str) -> list[dict[str, Any]]:
    return [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]


def mount(path: str = "/m", **more: Any) -> dict[str, Any]:
    return {"volumeMounts": [{"name": "v", "mountPath": path, **more}]}


def announced(
    root: Path, container: dict[str, Any] | None = None, pod: dict[str, Any] | None = None, **spec: Any
) -> str:
    """Return the announcement of fields that do not apply; "" for none."""
    config = {"secrets": {"s": {"k": "v"}}, "config_maps": {"m": {"k": "v"}}}
    _, texts = admitted(job({"image": "none", **(container or {})}, pod, workers=1, **spec), root, **config)
    return next((text for text in texts if text.startswith("not applied")), "")


def test_fields_that_are_honoured_are_not_announced(tmp_path: Path) -> None:
    container = {
        "args": ["a"],
        "workingDir": "/w",
        "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
        "envFrom": [{"prefix": "p", "configMapRef": {"name": "m"}}],
        "volumeMounts": [{"name": "v", "mountPath": "/m", "subPath": "s"}],
        "resources": {"requests": {"cpu": 1}},
        "ports": [{"containerPort": 23456}],
        "terminationMessagePolicy": "File",
    }
    volumes = [
        {"name": "v", "persistentVolumeClaim": {"claimName": "c"}},
        {"name": "e", "emptyDir": {"medium": "Memory"}},
        {"name": "m", "configMap": {"name": "m", "items": [], "optional": True}},
        {"name": "s", "secret": {"secretName": "s"}},
    ]
    init = [{"name": "i", "image": "none", "command": ["x"]}]
    policy = {"activeDeadlineSeconds": 3, "suspend": False}
    pod = {"initContainers": init, "terminationGracePeriodSeconds": 5, "volumes": volumes}

    assert announced(tmp_path, container, pod, runPolicy=policy, nprocPerNode="2") == ""
    for nothing in (None, [], {}, "", False):
        assert announced(tmp_path, None, {"nodeSelector": nothing, "unheardOf": nothing}) == ""


def test_fields_that_do_not_apply_are_announced_once_by_name(tmp_path: Path) -> None:
    """Known or not, of whichever replica."""
    volumes = [
        {"name": "v", "persistentVolumeClaim": {"claimName": "v"}},
        {"name": "e", "emptyDir": {"sizeLimit": "1"}},
    ]
    container = {
        "imagePullPolicy": "Always",
        "livenessProbe": {"exec": {}},
        "volumeMounts": [{"name": "v", "mountPath": "/v", "readOnly": True}],
        **limits(cpu=1, memory="1Gi", rdma__hca=1, nvidia_com__gpu="500m"),
    }
    pod = {"nodeSelector": {"zone": "a"}, "priority": 0, "volumes": volumes, "unheardOf": 1}
    asked = job(
        container,
        pod,
        workers=2,
        runPolicy={"managedBy": "kueue.x-k8s.io/multikueue", "schedulingPolicy": {"queue": "q"}},
    )
    asked["metadata"] |= {"labels": {"kueue.x-k8s.io/queue-name": "q"}, "annotations": {TENSORBOARD_ANNOTATION: "{}"}}

    _, texts = admitted(asked, tmp_path)

    (names,) = [text.removeprefix("not applied on this machine: ") for text in texts if text.startswith("not applied")]
    assert names.split(", ") == [
        *("cpu", "imagePullPolicy", "kueue.x-k8s.io/queue-name", "livenessProbe", "managedBy", "memory"),
        *(
            "nodeSelector",
            "nvidia.com/gpu",
            "priority",
            "rdma/hca",
            "readOnly",
            "schedulingPolicy",
            "sizeLimit of a volume",
            "tensorboard (`ptjob tensorboard` says how to show the curves)",
            "unheardOf",
        ),
    ]


@each_row(
    ("replica", "policy", "names"),
    [
        ({"restartPolicy": "Never"}, {"cleanPodPolicy": "Running"}, ""),
        ({"restartPolicy": "OnFailure"}, {}, "restartPolicy"),
        ({"restartPolicy": None}, {}, "restartPolicy"),
        ({"restartPolicy": "Never"}, {"backoffLimit": 0, "cleanPodPolicy": "None"}, "backoffLimit, cleanPodPolicy"),
    ],
)
def test_policies_that_do_not_apply_are_announced(
    tmp_path: Path, replica: dict[str, Any], policy: dict[str, Any], names: str
) -> None:
    asked = job(runPolicy=policy)
    asked["spec"]["pytorchReplicaSpecs"]["Master"] |= replica

    _, texts = admitted(asked, tmp_path)

    found = [text.partition(":")[0] for text in texts if "the job ends with its first failure" in text]
    assert found == ([names] if names else [])


@each_row(
    ("change", "path"),
    [
        ({"runPolicy": {"suspend": True}}, r"spec\.runPolicy\.suspend: jobs cannot be suspended"),
        ({"elasticPolicy": {}}, r"spec\.elasticPolicy: elastic jobs need a cluster"),
        ({"pod": {"initContainers": [{"name": "i", "restartPolicy": "Always"}]}}, r"Containers\[0\]\.restartPolicy"),
        ({"pod": {"volumes": [{"name": "a"}, {"name": "v", "csi": {"driver": "d"}}]}}, r"volumes\[1\]\.csi"),
        ({"container": {"volumeMounts": [{"name": "v", "subPathExpr": "$(A)"}]}}, r"volumeMounts\[\]\.subPathExpr"),
    ],
)
def test_fields_whose_loss_would_change_the_job_are_refused(tmp_path: Path, change: dict[str, Any], path: str) -> None:
    with pytest.raises(UnsupportedByBackend, match=path):
        admitted(job(**change), tmp_path)


def test_a_container_that_fetches_code_is_replaced_by_this_package(tmp_path: Path) -> None:
    """This holds for every image; the settings that the provider adds for pods are not announced."""
    sync = {"name": "init-code", "image": "git-sync:v4", "securityContext": {"runAsNonRoot": True}, **limits(cpu="1")}
    plain = {"name": "other", "image": "i:1", "command": ["x"], "imagePullPolicy": "Always"}

    setup, texts = admitted(job(pod={"initContainers": [sync, plain]}), tmp_path, python="/py")

    assert setup.image("git-sync:v4").entrypoint[-1].endswith("sync_code.py")
    assert not [text for text in texts if "git-sync" in text or "limits" in text or "securityContext" in text]
    assert "not applied on this machine: imagePullPolicy" in texts


@each_row(
    ("resources", "gpus", "words"),
    [
        ({"nvidia_com__gpu": 1}, 0, "requests 3 devices in all, this machine offers 0; .* runs on the CPU"),
        ({"nvidia_com__gpu": 2}, 5, "requests 6 devices in all, this machine offers 5"),
        ({"nvidia_com__gpu": 1}, 3, "requests 3 devices in all, this machine offers 2"),
    ],
)
def test_a_device_that_is_not_here_is_refused(tmp_path: Path, resources: dict[str, int], gpus: Any, words: str) -> None:
    given = {"CUDA_VISIBLE_DEVICES": "6,7"} if gpus == 3 else {}
    with pytest.raises(UnsupportedByBackend, match=words):
        admitted(job(limits(**resources), workers=2), tmp_path, gpus=gpus, environment=given)


@pytest.mark.parametrize("name", ["../c", "a/b", "", ".", "A", "a..b", "x" * 254])
def test_a_claim_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    """The name of a claim is the name of a directory."""
    with pytest.raises(InvalidSpec, match=r"volumes\[v\]"):
        admit_pod(pod(mount(), volumes=claim(name)), root=tmp_path)


def test_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    """Links inside the claim and a claim that is itself a link are allowed; a path that leads out is not."""
    (tmp_path / "real").mkdir()
    claims = tmp_path / "claims/ns"
    claims.mkdir(parents=True)
    (claims / "c").symlink_to(tmp_path / "real")
    (tmp_path / "real/out").symlink_to("/etc")
    (tmp_path / "real/sub").mkdir()
    (tmp_path / "real/in").symlink_to("sub")

    for name, sub_path in (("c", "in"), ("data-1", "a/b"), ("a.b", ""), ("x" * 253, "")):
        admit_pod(pod(mount(subPath=sub_path), volumes=claim(name)), root=tmp_path)
    with pytest.raises(InvalidSpec, match="link"):
        admit_pod(pod(mount(subPath="out/x"), volumes=claim("c")), root=tmp_path)
    for sub_path in ("..", "a/../../b", "/etc"):
        with pytest.raises(InvalidSpec, match="subPath"):
            admit_pod(pod(mount(subPath=sub_path), volumes=claim("c")), root=tmp_path)


@each_row(
    ("asked", "gpus", "name"),
    [
        (job({"command": None}), 0, "PTJOB_LOCAL_IMAGES"),
        (job(limits(nvidia_com__gpu=6)), 5, "PTJOB_LOCAL_GPUS"),
    ],
)
def test_a_refusal_names_the_option_as_the_adapter_does(
    tmp_path: Path, asked: dict[str, Any], gpus: Any, name: str
) -> None:
    """A step of a pipeline has variables, and no section `[ptjob]`."""
    with pytest.raises((InvalidSpec, UnsupportedByBackend), match=name):
        admitted(asked, tmp_path, gpus=gpus, title=variable)


def test_an_announcement_names_the_option_as_the_adapter_does(tmp_path: Path) -> None:
    _, texts = admitted(job(limits(nvidia_com__gpu=1)), tmp_path, gpus="ignore", title=variable)

    assert "ignored (PTJOB_LOCAL_GPUS = ignore)" in texts[0]
    assert texts[1].startswith("image i:1: PTJOB_LOCAL_IMAGES has no entry for it")


@each_row(
    ("bad", "words"),
    [
        (pod(mount("/"), volumes=claim("c")), "below /"),
        (pod(volumes=[{"name": "../v", "emptyDir": {}}]), "name"),
        (pod({"name": "a/b"}), "name"),
        (pod(initContainers=[{"name": "I", "image": "i", "command": ["x"]}]), "name"),
    ],
)
def test_names_and_paths_that_cannot_be_directories_are_refused(
    tmp_path: Path, bad: dict[str, Any], words: str
) -> None:
    """Volumes and containers have directories of the same name."""
    with pytest.raises(InvalidSpec, match=words):
        admit_pod(bad, root=tmp_path)


def test_only_fields_that_a_pod_has_here_can_be_variables(tmp_path: Path) -> None:
    def asking(path: str) -> dict[str, Any]:
        return pod(
            {"env": [{"name": "A", "value": "x"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": path}}}]}
        )

    for known in ("metadata.name", "metadata.labels['a/b']", "status.podIP"):
        admit_pod(asking(known), root=tmp_path)
    for unknown in ("spec.nodeName", "metadata.creationTimestamp"):
        with pytest.raises(UnsupportedByBackend, match=r"containers\[0\]\.env\[B\]\.valueFrom"):
            admit_pod(asking(unknown), root=tmp_path)


def test_a_pod_that_refers_to_a_missing_object_is_refused(tmp_path: Path) -> None:
    """References in `env`, `envFrom` and volumes of all containers are checked; the error has the path of the field."""
    variables = [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}, {"name": "B", "value": "x"}]
    volumes = [{"name": "v", "secret": {"secretName": "t"}}, {"name": "e", "emptyDir": {}}]
    init = {"name": "i", "image": "i", "command": ["x"], "envFrom": [{"configMapRef": {"name": "m"}}]}
    lost = {**init, "envFrom": [*init["envFrom"], {"secretRef": {"name": "no"}}]}

    admit_pod(pod({"env": variables}, initContainers=[init], volumes=volumes), root=tmp_path)
    with pytest.raises(InvalidSpec, match=r"initContainers\[0\]\.envFrom\[1\]\.secretRef"):
        admit_pod(pod(initContainers=[lost]), root=tmp_path)
    with pytest.raises(InvalidSpec, match=r"volumes\[0\]\.secret"):
        admit_pod(pod(volumes=[{"name": "v", "secret": {"secretName": "no"}}]), root=tmp_path)
