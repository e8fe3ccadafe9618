"""Fixtures: direct access to a namespace of the cluster; tests put the proxy in front of it."""

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
    """Yield a namespace for a test file, and the kubeconfig of an account in it."""
    with namespace_in(cluster) as namespace:
        yield namespace, kubeconfig_of(cluster, namespace)


@pytest.fixture
async def server(account: tuple[str, dict[str, Any]]) -> AsyncIterator[ApiServer]:
    """Yield direct access to the API server."""
    namespace, kubeconfig = account
    async with ApiServer.reached(kubeconfig, namespace) as server:
        yield server
