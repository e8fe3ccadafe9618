"""How many requests one user has made, as the API server counts them.

The server counts per flow schema (API Priority and Fairness), so each contender gets one that matches its service
account alone and leads to the priority level that service accounts have anyway: nothing is slower or faster for it.
Requests that read a log are no part of that; the server counts them by resource, whoever asks: those that have ended
in one metric, those that are still open in another.
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
    """What a server has counted so far: what one user has asked for, and who has read logs, whoever that was."""

    of_user: float
    logs: float

    def __sub__(self, other: Requests) -> Requests:
        return Requests(of_user=self.of_user - other.of_user, logs=self.logs - other.logs)


@asynccontextmanager
async def counted(server: ApiServer, namespace: str, account: str) -> AsyncIterator[str]:
    """Have the requests of a service account counted apart; gives the name they are counted under."""
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
    """Return what the server has counted under a name since that began."""
    page = await server.text("/metrics")
    return Requests(
        of_user=meter.total(page, "apiserver_flowcontrol_dispatched_requests_total", flow_schema=name),
        logs=sum(meter.total(page, name, resource="pods", subresource="log") for name in _OF_LOGS),
    )
