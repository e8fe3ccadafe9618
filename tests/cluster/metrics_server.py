"""Run a metrics server on a running cluster for one test, from its module's own manifests.

It is removed after the test, because other tests check the product without a metrics API.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from cluster import binaries, operators
from cluster.shell import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cluster.boot import Cluster

MODULE = "sigs.k8s.io/metrics-server"
_SERVER = "/spec/template/spec/containers/0"
_PATCH = [
    {"op": "add", "path": f"{_SERVER}/args/-", "value": "--kubelet-insecure-tls"},
    {"op": "add", "path": f"{_SERVER}/args/-", "value": "--metric-resolution=10s"},
    {"op": "add", "path": f"{_SERVER}/args/-", "value": "--kubelet-request-timeout=5s"},
    {"op": "replace", "path": f"{_SERVER}/resources", "value": {}},
    {"op": "replace", "path": f"{_SERVER}/readinessProbe/initialDelaySeconds", "value": 1},
    {"op": "replace", "path": f"{_SERVER}/readinessProbe/periodSeconds", "value": 1},
    {"op": "add", "path": f"{_SERVER}/readinessProbe/timeoutSeconds", "value": 30},
    {"op": "remove", "path": f"{_SERVER}/livenessProbe"},
]
"""The server does not know the cluster's own authority, which issued the kubelet's certificate. The liveness probe has
a timeout of one second and would restart the server on a busy machine."""


@contextlib.contextmanager
def serving(cluster: Cluster, tell: Callable[[str], None]) -> Iterator[None]:
    """Serve the metrics API while the context is open.

    Raises:
        ClusterFailed: the build failed, or the server returns no metrics in time.
    """
    cluster.programs.build(tell, [binaries.METRICS_SERVER])
    tell("applying the metrics server")
    home = operators.copied(cluster, binaries.METRICS_SERVER, MODULE, "manifests/base")
    manifests = operators.rendered(cluster, home, "manifests/base", _PATCH)
    try:
        operators.apply(cluster, manifests, cluster.programs.folder(binaries.METRICS_SERVER) / "metrics-server")
        wait_until("the metrics server to measure", lambda: cluster.kubectl("top", "nodes"), timeout=300)
        yield
    finally:
        cluster.kubectl("delete", "--filename", "-", "--ignore-not-found", "--wait=false", stdin=manifests)
        wait_until("the metrics API to go", lambda: not _is_served(cluster), timeout=60)


def _is_served(cluster: Cluster) -> bool:
    return "metrics.k8s.io" in cluster.kubectl("get", "--raw", "/apis")
