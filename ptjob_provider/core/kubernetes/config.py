"""Configuration of the access to one cluster: kubeconfig, context, TLS. Reads no files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ptjob_provider.core.errors import InvalidSpec

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Directory of a pod's token, namespace and cluster certificate."""


@dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """Access to one API server. Equal values share one client.

    Attributes:
        in_cluster: use the service account of this process's pod.
        kube_config_path: a kubeconfig file. None, with nothing else given: $KUBECONFIG, else `~/.kube/config`.
        kube_config: a whole kubeconfig as JSON or YAML text; it holds credentials and is never printed.
        context: of the kubeconfig. None: its current one.
        verify_ssl: whether the server's certificate is verified.
        tcp_keepalive: probe idle connections, which keeps them in the tables of gateways.
        timeout: seconds per request; streams have limits of their own.
        max_log_streams: maximum concurrent log streams of an event loop; further logs are read in turns.
        usage_interval: seconds between two usage samples of the replicas of followed jobs, all together; 0 disables
            sampling. At two minutes that is 30 requests an hour.
        attempts: tries per request; six, with the pauses between, outlast a restart of the API server.
    """

    in_cluster: bool = False
    kube_config_path: str | None = None
    kube_config: str | None = field(default=None, repr=False)
    context: str | None = None
    verify_ssl: bool = True
    tcp_keepalive: bool = True
    timeout: float = 30.0
    max_log_streams: int = 200
    attempts: int = 6
    usage_interval: float = 120.0

    def __post_init__(self) -> None:
        given = {
            "in_cluster": self.in_cluster,
            "kube_config_path": self.kube_config_path is not None,
            "kube_config": self.kube_config is not None,
        }
        chosen = [name for name, is_given in given.items() if is_given]
        if len(chosen) > 1:
            raise InvalidSpec.of(chosen[1], "set", f"leave it out, or leave out {chosen[0]}: one way to the cluster")
        if self.max_log_streams < 1:
            raise InvalidSpec.of("max_log_streams", self.max_log_streams, "allowed: a whole number, 1 or more")
        if self.usage_interval < 0:
            raise InvalidSpec.of("usage_interval", self.usage_interval, "allowed: seconds, or 0 for never")
