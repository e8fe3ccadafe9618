"""Users of the cluster: namespaces, open or hardened, and service accounts with their own kubeconfig."""

from __future__ import annotations

import contextlib
import functools
import json
import secrets
from typing import TYPE_CHECKING, Any

from cluster import pki
from cluster.shell import ClusterFailed, wait_until, write

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from cluster.boot import Cluster
    from cluster.kubectl import Kubectl

ABOUT_ONESELF = {"authentication.k8s.io", "authorization.k8s.io"}
"""API groups in which every account may query its own identity and rights."""

RESTRICTED = {
    "pod-security.kubernetes.io/enforce": "restricted",
    "pod-security.kubernetes.io/enforce-version": "latest",
}
QUOTA = {
    "requests.cpu": "4",
    "requests.memory": "8Gi",
    "limits.cpu": "8",
    "limits.memory": "16Gi",
    "pods": "10",
    "persistentvolumeclaims": "4",
    "count/pytorchjobs.kubeflow.org": "4",
}
"""With such a quota and no limit range, a container without requests and limits is refused."""
LIMITS = {
    "type": "Container",
    "default": {"cpu": "500m", "memory": "512Mi"},
    "defaultRequest": {"cpu": "50m", "memory": "64Mi"},
    "max": {"cpu": "4", "memory": "8Gi"},
    "min": {"cpu": "10m", "memory": "4Mi"},
}


@contextlib.contextmanager
def namespace_in(cluster: Cluster, *, labels: Mapping[str, str] | None = None) -> Iterator[str]:
    """Yield a new namespace, which is deleted afterwards without waiting."""
    name = f"test-{secrets.token_hex(4)}"
    cluster.kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels or {}}})
    wait_until(
        f"the service account of {name}",
        lambda: cluster.kubectl.get("serviceaccount", "default", namespace=name),
        timeout=120,
    )
    try:
        yield name
    finally:
        cluster.kubectl("delete", "namespace", name, "--wait=false")


@contextlib.contextmanager
def hardened_namespace_in(cluster: Cluster) -> Iterator[str]:
    """Yield a namespace as a careful administrator sets it up: restricted pods, a quota, a limit range."""
    with namespace_in(cluster, labels=RESTRICTED) as name:
        limits = {"apiVersion": "v1", "kind": "LimitRange", "spec": {"limits": [LIMITS]}}
        cluster.kubectl.apply(limits | {"metadata": {"name": "hardened", "namespace": name}})
        _have_quota(cluster, name)
        yield name


def _have_quota(cluster: Cluster, namespace: str) -> None:
    """Create the quota, and wait until the cluster counts everything in it.

    A new cluster discovers custom resources half a minute late, and checks a quota that it could not count again only
    after five minutes: so the quota is recreated until it is counted.
    """
    metadata = {"name": "hardened", "namespace": namespace}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": QUOTA}}
    for _ in range(12):
        cluster.kubectl.apply(quota)
        with contextlib.suppress(ClusterFailed):
            until_counted(cluster.kubectl, quota, timeout=8)
            return
        cluster.kubectl("delete", "resourcequota", "hardened", "--namespace", namespace)
    raise ClusterFailed(f"the quota of {namespace} was never counted")


def until_counted(kubectl: Kubectl, quota: Mapping[str, Any], *, timeout: float = 60) -> None:
    """Wait until the cluster counts everything in a quota that was created: it limits nothing before."""
    name, namespace = quota["metadata"]["name"], quota["metadata"]["namespace"]

    def is_counted() -> bool:
        status = kubectl.get("resourcequota", name, namespace=namespace).get("status", {})
        return set(status.get("used", ())) == set(quota["spec"]["hard"])

    wait_until(f"the quota {name} of {namespace}", is_counted, timeout=timeout)


def service_account(
    cluster: Cluster, namespace: str, rules: Sequence[Mapping[str, Any]], *, name: str = "ptjob"
) -> Path:
    """Create a service account with exactly the rules of a Role in the namespace; return its kubeconfig.

    A second call with other rules changes the rights of the same account. The rights have taken effect when this
    returns; the API server's authorizer needs a moment for that.
    """
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    metadata = {"metadata": {"name": name, "namespace": namespace}}
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", **metadata}
    cluster.kubectl.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", **metadata},
        {"kind": "Role", "rules": list(rules), **rbac},
        {"kind": "RoleBinding", "roleRef": role, "subjects": [subject], **rbac},
    )
    return kubeconfig_of(cluster, namespace, rules, name=name)


def kubeconfig_of(cluster: Cluster, namespace: str, rules: Sequence[Mapping[str, Any]], *, name: str = "ptjob") -> Path:
    """Return the kubeconfig of a service account once it has exactly the rights of these rules."""
    token = cluster.kubectl("create", "token", name, "--namespace", namespace, "--duration", "2h").strip()
    access = pki.kubeconfig(cluster.layout, {"token": token}, namespace=namespace)
    path = write(cluster.layout.home / "accounts" / f"{namespace}-{name}.kubeconfig", json.dumps(access, indent=1))
    kubectl, wanted = cluster.kubectl_as(path), _comparable(rules)
    wait_until(f"the rules of {namespace}/{name}", lambda: _rules_in_effect(kubectl, namespace) == wanted, timeout=60)
    return path


@contextlib.contextmanager
def rules_everywhere(cluster: Cluster, namespace: str, rules: Sequence[Mapping[str, Any]]) -> Iterator[None]:
    """Grant the service account the rules of a ClusterRole, in the whole cluster, while the context is open."""
    name = f"ptjob-{namespace}"
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name}}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subject = {"kind": "ServiceAccount", "name": "ptjob", "namespace": namespace}
    who, asked = f"--as=system:serviceaccount:{namespace}:ptjob", rules[-1]
    resource = ".".join(filter(None, (asked["resources"][-1], asked["apiGroups"][-1])))
    try:
        cluster.kubectl.apply(
            {**rbac, "kind": "ClusterRole", "rules": list(rules)},
            {**rbac, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": [subject]},
        )
        may = functools.partial(cluster.kubectl, "auth", "can-i", asked["verbs"][-1], resource, who)
        wait_until(f"the rights of {name}", may, timeout=60)
        yield
    finally:
        cluster.kubectl("delete", "clusterrole,clusterrolebinding", name, "--ignore-not-found")


def _rules_in_effect(kubectl: Kubectl, namespace: str) -> list[dict[str, list[str]]]:
    """Return the caller's rights as the authorizer reports them, without those to query its own rights."""
    review = {
        "kind": "SelfSubjectRulesReview",
        "apiVersion": "authorization.k8s.io/v1",
        "spec": {"namespace": namespace},
    }
    words = ("create", "--validate=false", "--filename", "-", "--output", "json")  # validation would list all kinds
    found = json.loads(kubectl(*words, stdin=json.dumps(review)))["status"]["resourceRules"]
    return _comparable([rule for rule in found if not ABOUT_ONESELF & set(rule.get("apiGroups") or ())])


def _comparable(rules: Sequence[Mapping[str, Any]]) -> list[dict[str, list[str]]]:
    parts = ("apiGroups", "resources", "resourceNames", "verbs")
    return sorted(({part: sorted(rule.get(part) or ()) for part in parts} for rule in rules), key=str)
