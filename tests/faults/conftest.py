"""A namespace of the cluster, reached directly; tests put the proxy in front of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cluster.tenants import namespace_in
from faults.api_server import ApiServer
from faults.trials import kubeconfig_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from cluster.boot import Cluster


@pytest.fixture(scope="module")
def account(cluster: Cluster) -> Iterator[tuple[str, dict[str, Any]]]:
    """Have a namespace for a file of tests, and an account's access to it."""
    with namespace_in(cluster) as namespace:
        yield namespace, kubeconfig_of(cluster, namespace)


@pytest.fixture
async def server(account: tuple[str, dict[str, Any]]) -> AsyncIterator[ApiServer]:
    """Have the API server, directly."""
    namespace, kubeconfig = account
    async with ApiServer.reached(kubeconfig, namespace) as server:
        yield server
