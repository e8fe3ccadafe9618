"""Return the API paths of all resources that this package uses, and so of all that a Role must allow."""

from __future__ import annotations

from ptjob_provider.core import kinds


def jobs(kind: str, namespace: str, name: str = "") -> str:
    """Return the path of a job, or of all jobs of the kind in a namespace.

    Raises:
        InvalidSpec: the kind is unknown.
    """
    of_kind = kinds.named(kind)
    return _path(f"/apis/{of_kind.API_VERSION}", namespace, of_kind.PLURAL, name)


def pods(namespace: str, name: str = "") -> str:
    """Return the path of a pod, or of all pods of a namespace."""
    return _path("/api/v1", namespace, "pods", name)


def pod_log(namespace: str, name: str) -> str:
    """Return the path of a pod's log."""
    return f"{pods(namespace, name)}/log"


def events(namespace: str) -> str:
    """Return the path of a namespace's events."""
    return _path("/api/v1", namespace, "events", "")


def claims(namespace: str, name: str = "") -> str:
    """Return the path of a claim, or of all claims of a namespace."""
    return _path("/api/v1", namespace, "persistentvolumeclaims", name)


def config_maps(namespace: str, name: str = "") -> str:
    """Return the path of a ConfigMap, or of all ConfigMaps of a namespace."""
    return _path("/api/v1", namespace, "configmaps", name)


def secrets(namespace: str, name: str = "") -> str:
    """Return the path of a Secret, or of all Secrets of a namespace."""
    return _path("/api/v1", namespace, "secrets", name)


def runtimes(kind: str, namespace: str) -> str:
    """Return the path of the runtimes of a kind: ClusterTrainingRuntime, or TrainingRuntime in a namespace."""
    is_of_cluster = kind == "ClusterTrainingRuntime"
    return _path("/apis/trainer.kubeflow.org/v1alpha1", "" if is_of_cluster else namespace, f"{kind.lower()}s", "")


def services(namespace: str, name: str = "") -> str:
    """Return the path of a Service, or of all Services of a namespace."""
    return _path("/api/v1", namespace, "services", name)


def deployments(namespace: str, name: str = "") -> str:
    """Return the path of a Deployment, or of all Deployments of a namespace."""
    return _path("/apis/apps/v1", namespace, "deployments", name)


def workloads(namespace: str) -> tuple[str, str]:
    """Return the paths of Kueue's Workloads, the newer API first.

    Kueue serves v1beta2 from 0.15 on, and v1beta1 until 0.19; the fields that we read are the same in both.
    """
    return (
        _path("/apis/kueue.x-k8s.io/v1beta2", namespace, "workloads", ""),
        _path("/apis/kueue.x-k8s.io/v1beta1", namespace, "workloads", ""),
    )


def pod_metrics(namespace: str) -> str:
    """Return the path of the pod metrics of a namespace."""
    return _path("/apis/metrics.k8s.io/v1beta1", namespace, "pods", "")


def _path(root: str, namespace: str, plural: str, name: str) -> str:
    whole = f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"
    return f"{whole}/{name}" if name else whole


def described(method: str, path: str) -> str:
    """Return a request for error messages: `create pytorchjobs in default`, `read pods/log default/train-master-0`."""
    verb = {"GET": "read", "POST": "create", "PATCH": "change", "DELETE": "delete"}.get(method, method)
    _, _, rest = path.partition("/namespaces/")
    namespace, plural, name, sub = (*rest.split("/"), "", "", "")[:4]
    if not plural:
        return f"{verb} {path}"
    resource = f"{plural}/{sub}" if sub else plural
    return f"{verb} {resource} {namespace}/{name}" if name else f"{verb} {resource} in {namespace}"
