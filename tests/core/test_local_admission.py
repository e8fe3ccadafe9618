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
STORES = {"secrets": {"s": {"k": "hidden", "l": "w"}, "t": {"k": "x"}}, "config_maps": {"m": {"k": "v"}}}


def job(
    container: dict[str, Any] | None = None, pod: dict[str, Any] | None = None, *, workers: int = 0, **spec: Any
) -> dict[str, Any]:
    first = {"name": "pytorch", "image": "none", "command": ["x"], **(container or {})}
    role = {"restartPolicy": "Never", "template": {"spec": {"containers": [first], **(pod or {})}}}
    roles = {"Master": role, **({"Worker": {**role, "replicas": workers}} if workers else {})}
    meta = {"name": "j", "namespace": "ns", "uid": UID, "creationTimestamp": "2026-11-20T10:00:00Z"}
    return {"apiVersion": "a", "kind": "k", "metadata": meta, "spec": {"pytorchReplicaSpecs": roles, **spec}}


def admitted(asked: dict[str, Any], root: Path, **config: Any) -> tuple[Setup, list[str]]:
    """Return the setup and the announcements."""
    setup, events = admit(asked, LocalConfig(root=root, **{**STORES, **config}))
    return setup, [event["message"] for event in events]


def limits(gpu: Any, **resources: Any) -> dict[str, Any]:
    return {"resources": {"limits": {"nvidia.com/gpu": gpu, **resources}}}


def claim(name: str) -> dict[str, Any]:
    return {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]}


def mount(path: str = "/m", **more: Any) -> dict[str, Any]:
    return {"volumeMounts": [{"name": "v", "mountPath": path, **more}]}


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
        {"name": "s", "secret": {"secretName": "s", "items": [{"key": "gone", "path": "p"}], "optional": True}},
        {"name": "n", "secret": {"secretName": "no", "optional": True}},
    ]
    init = [{"name": "i", "image": "none", "command": ["x"]}]
    policy = {"activeDeadlineSeconds": 3, "suspend": False, "cleanPodPolicy": "Running"}
    pod = {"initContainers": init, "terminationGracePeriodSeconds": 5, "volumes": volumes}

    assert admitted(job(container, pod, workers=1, runPolicy=policy, nprocPerNode="2"), tmp_path)[1] == []
    for nothing in (None, [], {}, "", False):
        assert admitted(job(pod={"nodeSelector": nothing, "unheardOf": nothing}), tmp_path)[1] == []


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
        **limits("500m", cpu=1, memory="1Gi", **{"rdma/hca": 1}),
    }
    pod = {"nodeSelector": {"zone": "a"}, "priority": 0, "volumes": volumes, "unheardOf": 1}
    asked = job(
        container,
        pod,
        workers=2,
        runPolicy={"managedBy": "kueue.x-k8s.io/multikueue", "schedulingPolicy": {"queue": "q"}, "backoffLimit": 0},
    )
    asked["spec"]["pytorchReplicaSpecs"]["Master"]["restartPolicy"] = None
    asked["metadata"] |= {"labels": {"kueue.x-k8s.io/queue-name": "q"}, "annotations": {TENSORBOARD_ANNOTATION: "{}"}}

    _, texts = admitted(asked, tmp_path)

    assert texts[0].startswith("restartPolicy, backoffLimit: not applied on this machine: nothing is restarted")
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
    sync = {"name": "init-code", "image": "git-sync:v4", "securityContext": {"runAsNonRoot": True}, **limits(0)}
    plain = {"name": "other", "image": "none", "command": ["x"], "imagePullPolicy": "Always"}

    setup, texts = admitted(job(pod={"initContainers": [sync, plain]}), tmp_path, python="/py")

    assert setup.image("git-sync:v4").entrypoint[-1].endswith("sync_code.py")
    assert not [text for text in texts if "git-sync" in text or "limits" in text or "securityContext" in text]
    assert "not applied on this machine: imagePullPolicy" in texts


@each_row(
    ("each", "gpus", "words"),
    [
        (1, 0, "requests 3 devices in all, this machine offers 0; .* runs on the CPU"),
        (2, 5, "requests 6 devices in all, this machine offers 5"),
        (1, 3, "requests 3 devices in all, this machine offers 2"),
    ],
)
def test_a_device_that_is_not_here_is_refused(tmp_path: Path, each: int, gpus: int, words: str) -> None:
    given = {"CUDA_VISIBLE_DEVICES": "6,7"} if gpus == 3 else {}
    with pytest.raises(UnsupportedByBackend, match=words):
        admitted(job(limits(each), workers=2), tmp_path, gpus=gpus, environment=given)


@pytest.mark.parametrize("name", ["../c", "a/b", "", ".", "A", "a..b", "x" * 254])
def test_a_claim_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    """The name of a claim is the name of a directory."""
    with pytest.raises(InvalidSpec, match=r"volumes\[v\]"):
        admitted(job(mount(), claim(name)), tmp_path)


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
        admitted(job(mount(subPath=sub_path), claim(name)), tmp_path)
    for sub_path, why in (("out/x", "link"), ("..", "subPath"), ("a/../../b", "subPath"), ("/etc", "subPath")):
        with pytest.raises(InvalidSpec, match=why):
            admitted(job(mount(subPath=sub_path), claim("c")), tmp_path)


def test_options_are_named_as_the_adapter_does(tmp_path: Path) -> None:
    """A step of a pipeline has variables, and no section `[ptjob]`."""
    title = "PTJOB_{}".format
    for asked, option in ((job({"command": None}), "PTJOB_local_images"), (job(limits(gpu=6)), "PTJOB_local_gpus")):
        with pytest.raises(UnsupportedByBackend, match=option):
            admitted(asked, tmp_path, gpus=5, title=title)

    _, texts = admitted(job({"image": "i:1", **limits(gpu=1)}), tmp_path, gpus="ignore", title=title)

    assert "ignored (PTJOB_local_gpus = ignore)" in texts[0]
    assert texts[1].startswith("image i:1: PTJOB_local_images has no entry for it")


@each_row(
    ("bad", "words"),
    [
        (job(mount("/"), claim("c")), "below /"),
        (job(pod={"volumes": [{"name": "../v", "emptyDir": {}}]}), "name"),
        (job({"name": "a/b"}), "name"),
        (job(pod={"initContainers": [{"name": "I", "image": "i", "command": ["x"]}]}), "name"),
    ],
)
def test_names_and_paths_that_cannot_be_directories_are_refused(
    tmp_path: Path, bad: dict[str, Any], words: str
) -> None:
    """Volumes and containers have directories of the same name."""
    with pytest.raises(InvalidSpec, match=words):
        admitted(bad, tmp_path)


def test_only_fields_that_a_pod_has_here_can_be_variables(tmp_path: Path) -> None:
    def asking(path: str) -> dict[str, Any]:
        return job(variables({"fieldRef": {"fieldPath": path}}))

    for known in ("metadata.name", "metadata.labels['a/b']", "status.podIP"):
        admitted(asking(known), tmp_path)
    for unknown in ("spec.nodeName", "metadata.creationTimestamp"):
        with pytest.raises(UnsupportedByBackend, match=r"containers\[0\]\.env\[B\]\.valueFrom"):
            admitted(asking(unknown), tmp_path)


def variables(source: dict[str, Any]) -> dict[str, Any]:
    return {"env": [{"name": "A", "value": "x"}, {"name": "B", "valueFrom": source}]}


def volume(**secret: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "e", "emptyDir": {}}, {"name": "v", "secret": {"secretName": "s", **secret}}]}


LOST = [{"configMapRef": {"name": "m"}}, {"secretRef": {"name": "no"}}]


@each_row(
    ("bad", "words"),
    [
        (job(variables({"secretKeyRef": {"name": "s", "key": "x"}})), r"\.env\[B\].*secretKeyRef: 's/x'"),
        (job(variables({"configMapKeyRef": {"name": "x", "key": "k"}})), "configMapKeyRef: 'x/k'.*here.*: m"),
        (
            job(pod={"initContainers": [{"name": "i", "image": "none", "command": ["x"], "envFrom": LOST}]}),
            r"initContainers\[0\]\.envFrom\[1\]\.secretRef: 'no'.*configured here.*: s, t",
        ),
        (job(pod=volume(secretName="no")), r"volumes\[1\]\.secret: 'no'"),
        (job(pod=volume(items=[{"key": "gone", "path": "p"}])), r"volumes\[1\]\.secret: 's/gone'"),
    ],
)
def test_a_pod_that_refers_to_a_missing_object_is_refused(tmp_path: Path, bad: dict[str, Any], words: str) -> None:
    """References in `env`, `envFrom` and volumes of all containers are checked; the error has the path of the field."""
    with pytest.raises(InvalidSpec, match=words) as caught:
        admitted(bad, tmp_path)

    assert "hidden" not in str(caught.value)
