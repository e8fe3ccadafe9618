"""Test of the rights that following a claim needs."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

from cluster.tenants import service_account
from cluster_world import PATIENCE, Tenant, config_of
from ptjob_provider.core.kubernetes import KubernetesBackend

if TYPE_CHECKING:
    from cluster.boot import Cluster

NOTE = "ptjob.dev/arrived"


async def test_a_role_for_one_claim_is_enough_for_one_claim(cluster: Cluster, namespace: str) -> None:
    """The claim is read by its name: an account that may see no other claim can follow this one."""
    await asyncio.to_thread(Tenant(cluster, namespace).annotate, "data", {NOTE: "1"})
    rule = {
        "apiGroups": [""],
        "resources": ["persistentvolumeclaims"],
        "resourceNames": ["data"],
        "verbs": ["list", "watch"],
    }
    account = service_account(cluster, namespace, [rule])

    async with (
        asyncio.timeout(PATIENCE),
        aclosing(KubernetesBackend(config_of(account)).watch_claim(namespace, "data")) as states,
    ):
        seen = await anext(states)

    assert seen is not None
    assert seen.annotations[NOTE] == "1"
