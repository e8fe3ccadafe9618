"""Tests of following claims: creation, deletion, and the rights that it needs."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import TYPE_CHECKING

from cluster.tenants import service_account
from cluster_world import PATIENCE, Tenant, config_of
from ptjob_provider.core.kubernetes import KubernetesBackend

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from cluster.boot import Cluster
    from ptjob_provider.core.backend import Claim

NOTE = "ptjob.dev/arrived"


async def following(states: AsyncGenerator[Claim | None, None], note: str | None) -> Claim | None:
    """Return the first state with this note; with None, the first in which the claim does not exist."""
    async with asyncio.timeout(PATIENCE):
        async for state in states:
            if state is None and note is None:
                return None
            if state is not None and note is not None and state.annotations.get(NOTE) == note:
                return state
    raise AssertionError("the states ended")


async def test_a_claim_that_is_made_anew_under_its_name_is_another_claim(
    cluster: Cluster, namespace: str, backend: KubernetesBackend
) -> None:
    """Before the claim exists, while it does, after its deletion, and the next one of its name, with another uid."""
    async with aclosing(backend.watch_claim(namespace, "data")) as states:
        await following(states, None)
        await asyncio.to_thread(Tenant(cluster, namespace).annotate, "data", {NOTE: "1"})
        first = await following(states, "1")
        await asyncio.to_thread(cluster.kubectl, "delete", "pvc", "data", "--namespace", namespace, timeout=120)
        await following(states, None)
        await asyncio.to_thread(Tenant(cluster, namespace).annotate, "data", {NOTE: "1"})
        second = await following(states, "1")

    assert first is not None
    assert second is not None
    assert first.uid != second.uid


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

    async with aclosing(KubernetesBackend(config_of(account)).watch_claim(namespace, "data")) as states:
        seen = await following(states, "1")

    assert seen is not None
    assert json.loads(json.dumps(dict(seen.annotations)))[NOTE] == "1"
