"""Define the configuration of the access to a cluster: kubeconfig, context, TLS, limits. Reads no files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ptjob_provider.core.errors import InvalidSpec

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Directory with a pod's token and namespace, and with the cluster's certificate."""


@dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """Configuration of the access to one API server. Users with equal values share one client.

    At most one of `in_cluster`, `kube_config_path` and `kube_config` may be set. Without them, the kubeconfig is
    $KUBECONFIG, else `~/.kube/config`.

    Attributes:
        in_cluster: use the service account of this process's pod.
        kube_config_path: path of a kubeconfig file.
        kube_config: a whole kubeconfig as JSON or YAML text; it has credentials and is never printed.
            A token that it has itself cannot be renewed.
        context: context of the kubeconfig. None: its current context.
        verify_ssl: whether the server's certificate is verified.
        tcp_keepalive: probe idle connections, so that gateways do not drop them.
        timeout: seconds per request; of a stream, until its response begins.
        max_log_streams: maximum concurrent log streams of an event loop; a further log is read when a stream is free,
            or at the end of its run.
        attempts: tries per request; six tries, with the pauses between them, outlast a restart of the API server.
        usage_interval: seconds between two usage samples of all followed jobs together; 0 disables sampling. Two
            minutes mean 30 requests an hour.
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
        sources = {
            "in_cluster": self.in_cluster,
            "kube_config_path": self.kube_config_path is not None,
            "kube_config": self.kube_config is not None,
        }
        names = [name for name, is_set in sources.items() if is_set]
        if len(names) > 1:
            raise InvalidSpec.of(names[1], "set", f"leave it out, or leave out {names[0]}: one way to the cluster")
        if self.max_log_streams < 1:
            raise InvalidSpec.of("max_log_streams", self.max_log_streams, "allowed: a whole number, 1 or more")
        if self.usage_interval < 0:
            raise InvalidSpec.of("usage_interval", self.usage_interval, "allowed: seconds, or 0 for never")
