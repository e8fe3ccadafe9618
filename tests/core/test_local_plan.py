from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ptjob_provider.core.errors import UnsupportedByBackend
from ptjob_provider.core.local import ImageStandIn, LocalConfig
from ptjob_provider.core.local.admission import plan

if TYPE_CHECKING:
    from pathlib import Path


def job(container: dict[str, Any] | None = None, *, workers: int = 0) -> dict[str, Any]:
    first = {"name": "pytorch", "image": "i:1", "command": ["x"], **(container or {})}
    role = {"template": {"spec": {"containers": [first]}}}
    roles = {"Master": role, **({"Worker": {**role, "replicas": workers}} if workers else {})}
    meta = {"name": "j", "namespace": "ns", "uid": "U"}
    return {"apiVersion": "a", "kind": "k", "metadata": meta, "spec": {"pytorchReplicaSpecs": roles}}


def gpus(count: int, name: str = "nvidia.com/gpu") -> dict[str, Any]:
    return {"resources": {"limits": {name: count}}}


def messages(found: list[dict[str, Any]]) -> list[str]:
    return [event["message"] for event in found]


def test_the_supervisor_is_told_what_it_needs(tmp_path: Path) -> None:
    """Of claims only the namespace's, of secrets only those referred to."""
    env = [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
    config = LocalConfig(
        root=tmp_path, python="/py", secrets={"s": {"k": "v", "l": "w"}, "t": {}}, environment={"A": "b"}
    )

    setup, _ = plan(job({"env": env}), config)

    assert setup.claims == str(tmp_path / "claims/ns")
    assert setup.stores.secrets == {"s": {"k": "v"}}
    assert (setup.python, setup.environment) == ("/py", {"A": "b"})


def test_an_announcement_is_an_event_about_the_job(tmp_path: Path) -> None:
    """As the API server has them."""
    _, (event,) = plan(job(), LocalConfig(root=tmp_path, python="/py"))

    assert (event["kind"], event["reason"], event["type"]) == ("Event", "NotApplied", "Normal")
    assert event["involvedObject"] == {"apiVersion": "a", "kind": "k", "namespace": "ns", "name": "j", "uid": "U"}
    assert event["message"].startswith("image i:1: [ptjob] local_images has no entry for it")
    assert event["message"].endswith("python is /py")


def test_a_stand_in_says_what_it_leaves_out(tmp_path: Path) -> None:
    """And which interpreter stands for the image's: its own, else the configured one."""
    (tmp_path / "Dockerfile").write_text("FROM x\nRUN make\n")
    own = LocalConfig(root=tmp_path, images={"i": ImageStandIn(context=tmp_path, python="/own")})
    (tmp_path / "quiet").mkdir()
    (tmp_path / "quiet/Dockerfile").write_text("FROM x\n")
    quiet = LocalConfig(root=tmp_path, images={"i": ImageStandIn(context=tmp_path / "quiet")}, python="/py")

    setup, said = plan(job(), own)
    _, less = plan(job(), quiet)

    assert setup.images["i:1"].python == "/own"
    assert messages(said) == [f"image i:1: replaced by {tmp_path}; python is /own; not applied: RUN"]
    assert messages(less) == [f"image i:1: replaced by {tmp_path / 'quiet'}; python is /py"]


def test_an_unknown_entrypoint_is_refused(tmp_path: Path) -> None:
    """With the container's path."""
    with pytest.raises(UnsupportedByBackend, match=r"Master\.template\.spec\.containers\[0\]\.command"):
        plan(job({"command": None}), LocalConfig(root=tmp_path))


def test_read_only_mounts_are_said_to_be_writable(tmp_path: Path) -> None:
    """By their mount or by their claim, once for all replicas."""
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "old", "persistentVolumeClaim": {"claimName": "old", "readOnly": True}},
    ]
    mounts = [
        {"name": "data", "mountPath": "/rw"},
        {"name": "data", "mountPath": "/ro", "readOnly": True},
        {"name": "old", "mountPath": "/old"},
    ]
    asked = job({"volumeMounts": mounts}, workers=2)
    for role in asked["spec"]["pytorchReplicaSpecs"].values():
        role["template"]["spec"]["volumes"] = volumes
    _, said = plan(asked, LocalConfig(root=tmp_path))

    assert [text for text in messages(said) if "/ro" in text] == [
        "readOnly mounts can be written on this machine (/ro, /old)"
    ]


def test_limits_are_said_not_to_be_enforced(tmp_path: Path) -> None:
    """Once for all containers."""
    _, said = plan(job({"resources": {"limits": {"cpu": 1}}}, workers=2), LocalConfig(root=tmp_path))

    assert sum("not enforced" in text for text in messages(said)) == 1


def test_devices_are_refused_ignored_or_lent(tmp_path: Path) -> None:
    """As configured."""
    with pytest.raises(UnsupportedByBackend, match=r"limits\[nvidia.com/gpu\].*refused"):
        plan(job(gpus(1)), LocalConfig(root=tmp_path))

    _, ignored = plan(job(gpus(1)), LocalConfig(root=tmp_path, gpus="ignore"))
    lent, said = plan(job(gpus(1)), LocalConfig(root=tmp_path, gpus=1))

    assert any("nvidia.com/gpu: 1 is ignored" in text for text in messages(ignored))
    assert lent.gpus == 1
    assert not any("ignored" in text for text in messages(said))


@pytest.mark.parametrize("lent", [4, "refuse"])
def test_only_gpus_are_lent(tmp_path: Path, lent: Any) -> None:
    """Another device is refused, or ignored; what helps with a GPU is not advised."""
    with pytest.raises(UnsupportedByBackend, match=r"rdma/hca.*GPUs only; leave it out, or have it ignored"):
        plan(job(gpus(1, "rdma/hca")), LocalConfig(root=tmp_path, gpus=lent))

    _, said = plan(job(gpus(1, "rdma/hca")), LocalConfig(root=tmp_path, gpus="ignore"))

    assert any("rdma/hca: 1 is ignored" in text for text in messages(said))
    assert any(text.endswith("it runs without") for text in messages(said))


def test_more_devices_than_there_are_never_come(tmp_path: Path) -> None:
    """All replicas together."""
    with pytest.raises(UnsupportedByBackend, match="requests 6 devices in all, this machine offers 5"):
        plan(job(gpus(2), workers=2), LocalConfig(root=tmp_path, gpus=5))


def test_what_fetches_code_is_stood_in_for_by_this_package(tmp_path: Path) -> None:
    """Whatever its image is, as long as nothing else stands in; what we say of it to pods is not announced."""
    sync = {"name": "init-code", "image": "git-sync:v4", "securityContext": {"runAsNonRoot": True}}
    sync |= {"resources": {"limits": {"cpu": "1"}}, "imagePullPolicy": "IfNotPresent"}
    plain = {"name": "other", "image": "i:1", "command": ["x"], "imagePullPolicy": "Always"}
    described = job()
    pod = described["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    pod["initContainers"] = [sync, plain]

    setup, notices = plan(described, LocalConfig(root=tmp_path, python="/py"))

    assert setup.image("git-sync:v4").entrypoint[-1].endswith("sync_code.py")
    assert not [text for text in messages(notices) if "git-sync" in text or "limits" in text or "runAs" in text]
    assert any("initContainers[1].imagePullPolicy" in text for text in messages(notices))
