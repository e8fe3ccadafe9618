"""What a pod asks its cluster about itself and about the pods of earlier tries, with the rights that it takes."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest

from cluster.tenants import service_account
from cluster_world import config_of
from ptjob_provider.core.errors import PermissionDenied
from ptjob_provider.core.kubernetes import OwnPod, secret_values

if TYPE_CHECKING:
    from cluster.boot import Cluster
    from ptjob_provider.core.kubernetes import ClusterConfig

RIGHTS: list[dict[str, Any]] = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "patch"]}]
SECRETS: dict[str, Any] = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
STAYS = {"schedulingGates": [{"name": "example.org/stays"}], "containers": [{"name": "main", "image": "none"}]}
"""A pod that never begins to run."""


class Pods:
    """Pods of a namespace that know themselves."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._kubectl = cluster.kubectl
        self._namespace = namespace
        self._config = config_of(service_account(cluster, namespace, RIGHTS))

    def create(self, kind: str, name: str, **more: Any) -> dict[str, Any]:
        """Create an object and return it."""
        metadata = {"name": name, "namespace": self._namespace, **more.pop("metadata", {})}
        found = {"apiVersion": "v1", "kind": kind, "metadata": metadata, **more}
        text = self._kubectl("create", "--filename", "-", "--output", "json", stdin=json.dumps(found))
        return dict(json.loads(text))

    def reference(self, name: str) -> dict[str, Any]:
        """Create something and return it as an owner; the garbage collector removes what has none that exists."""
        uid = self.create("ConfigMap", name)["metadata"]["uid"]
        return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid}

    def own(self, name: str, **metadata: Any) -> OwnPod:
        """Create a pod and return it as it knows itself."""
        uid = self.create("Pod", name, metadata=metadata, spec=STAYS)["metadata"]["uid"]
        return OwnPod(config=self._config, namespace=self._namespace, name=name, uid=uid)

    def end(self, name: str) -> None:
        """Have a pod ended."""
        words = ("--subresource=status", "--type=merge", "--patch", '{"status": {"phase": "Succeeded"}}')
        self._kubectl("patch", "pod", name, "--namespace", self._namespace, *words)


@pytest.fixture
def pods(cluster: Cluster, namespace: str) -> Pods:
    """Return a namespace without pods."""
    return Pods(cluster, namespace)


async def test_a_pod_knows_what_controls_it(pods: Pods) -> None:
    """Of its owners the one that made it; as an owner of something else that one holds up nothing."""
    other, run = (pods.reference(name) for name in ("a", "b"))
    owned = pods.own("owned", ownerReferences=[other, {**run, "controller": True}])
    free = pods.own("free", ownerReferences=[other])

    assert await owned.controller() == {**run, "blockOwnerDeletion": False}
    assert await free.controller() is None


async def test_what_a_pod_notes_is_found_by_the_pods_after_it(pods: Pods) -> None:
    """The last note of each, and nobody else's."""
    first, second, other = pods.own("first"), pods.own("second"), pods.own("other")
    await first.note("step-1", "once")
    await first.note("step-1", "failed")
    await other.note("step-2", "succeeded")

    assert await second.notes("step-1") == ["failed"]


async def test_replicas_that_have_not_ended_are_found_by_their_labels(pods: Pods) -> None:
    """All labels count."""
    step, mine = pods.own("step"), {"run": "1", "task": "train"}
    pods.own("waits", labels=mine)
    pods.own("ended", labels=mine)
    pods.own("others", labels={"run": "1"})
    pods.end("ended")

    found = await step.replicas(step.namespace, mine)

    assert [pod["metadata"]["name"] for pod in found] == ["waits"]


def job(namespace: str, name: str) -> dict[str, Any]:
    """Return a job with a variable from a Secret, and one from a Secret that is not there."""
    env = [
        {"name": "A", "valueFrom": {"secretKeyRef": {"name": name, "key": "token"}}},
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "none", "key": "token"}}},
    ]
    spec = {"pytorchReplicaSpecs": {"Master": {"template": {"spec": {"containers": [{"env": env}]}}}}}
    return {"metadata": {"namespace": namespace}, "spec": spec}


async def test_the_secrets_of_a_job_are_read_where_that_is_allowed(
    cluster: Cluster, namespace: str, pods: Pods
) -> None:
    """Of a Secret the keys that are used."""
    values = {"token": "canary", "other": "thing"}
    pods.create("Secret", "hub", data={key: base64.b64encode(text.encode()).decode() for key, text in values.items()})

    def config(name: str, rules: list[dict[str, Any]]) -> ClusterConfig:
        return config_of(service_account(cluster, namespace, rules, name=name))

    assert await secret_values(config("reader", [SECRETS]), job(namespace, "hub")) == ["canary"]
    with pytest.raises(PermissionDenied, match='cannot get resource "secrets"'):
        await secret_values(config("nobody", []), job(namespace, "hub"))


@pytest.mark.parametrize(
    ("node", "number"), [("run.root.train.executor(2)", 2), ("run.root.train(1:x).executor", None), (None, None)]
)
async def test_a_pod_knows_which_try_of_its_node_it_is(pods: Pods, node: str | None, number: int | None) -> None:
    """Argo numbers the tries of the nodes that it may repeat, and no others."""
    annotations = {"workflows.argoproj.io/node-name": node} if node else {}

    assert await pods.own("step", annotations=annotations).try_number() == number
