"""Counts the requests of one user with the API server's metrics.

The server counts requests per flow schema (API Priority and Fairness). Each contender therefore gets a flow schema that
matches only its service account; it has the default priority level of service accounts, so it does not change the
contender's speed. Log requests are not in that metric. The server counts them per resource for all users together:
finished ones in one metric, open ones in another.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks import meter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from benchmarks.apiserver import ApiServer

_SCHEMAS = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"
_OF_LOGS = ("apiserver_request_total", "apiserver_longrunning_requests")
_RULE = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}


@dataclass(frozen=True, kw_only=True)
class Requests:
    """Counters of a server: one user's requests, and the log requests of all users."""

    of_user: float
    logs: float

    def __sub__(self, other: Requests) -> Requests:
        return Requests(of_user=self.of_user - other.of_user, logs=self.logs - other.logs)


@asynccontextmanager
async def counted(server: ApiServer, namespace: str, account: str) -> AsyncIterator[str]:
    """Count a service account's requests separately inside the block; yield the name of the counter."""
    name = f"{namespace}-{account}"
    subject = {"kind": "ServiceAccount", "serviceAccount": {"namespace": namespace, "name": account}}
    schema = {
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "FlowSchema",
        "metadata": {"name": name},
        "spec": {
            "matchingPrecedence": 1000,
            "priorityLevelConfiguration": {"name": "workload-low"},
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [{"subjects": [subject], "resourceRules": [_RULE]}],
        },
    }
    await server.request("POST", _SCHEMAS, body=schema)
    try:
        yield name
    finally:
        await server.request("DELETE", f"{_SCHEMAS}/{name}")


async def read(server: ApiServer, name: str) -> Requests:
    """Return the current values of the counter of this name, and of the counters of log requests."""
    page = await server.text("/metrics")
    return Requests(
        of_user=meter.total(page, "apiserver_flowcontrol_dispatched_requests_total", flow_schema=name),
        logs=sum(meter.total(page, name, resource="pods", subresource="log") for name in _OF_LOGS),
    )
