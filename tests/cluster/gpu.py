"""Simulated devices: the node reports them and the scheduler counts them, but pods find no device."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

from cluster.layout import NODE
from cluster.shell import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.boot import Cluster

RESOURCE = "nvidia.com/gpu"


@contextlib.contextmanager
def gpus(cluster: Cluster, count: int, *, resource: str = RESOURCE) -> Iterator[None]:
    """Let the node report this many GPUs, or other devices; on exit it reports none."""
    _say(cluster, resource, str(count))
    try:
        yield
    finally:
        _say(cluster, resource, None)


def _say(cluster: Cluster, resource: str, count: str | None) -> None:
    """Write the number into the node's status and wait until the kubelet keeps it."""
    status = {"capacity": {resource: count}, "allocatable": {resource: count}}
    words = ("patch", "node", NODE, "--subresource=status", "--type=merge", "--patch")
    cluster.kubectl(*words, json.dumps({"status": status}))

    def adopted() -> bool:
        seen = cluster.kubectl.get("node", NODE)["status"]
        return all(seen[part].get(resource) == count for part in status)

    wait_until(f"the node to say {resource} {count or 'no more'}", adopted, timeout=180)
