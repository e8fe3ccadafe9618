"""Fixtures with each back-end that the contract covers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from cluster.tenants import service_account
from cluster_world import PATIENCE, Tenant, config_of
from local_world import environment, without_supervisor
from ptjob_provider.core.kubernetes import KubernetesBackend
from ptjob_provider.core.local.backend import LocalBackend
from ptjob_provider.core.local.config import LocalConfig
from rbac import rules
from worlds import World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture(params=["local", pytest.param("kubernetes", marks=pytest.mark.cluster)])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """Return a back-end without jobs."""
    made = _on_cluster(request) if request.param == "kubernetes" else _on_this_machine(tmp_path)
    yield made
    await made.clear()


def _on_this_machine(folder: Path) -> World:
    config = LocalConfig(root=folder / "root", environment=environment())
    claims = config.claims_of("default")
    return World(
        backend=LocalBackend(config),
        image="example.org/train:1",
        claim=lambda name: claims / name,
        without_kill=partial(without_supervisor, config.root),
    )


def _on_cluster(request: pytest.FixtureRequest) -> World:
    """Return a namespace, reached by a service account that has only the documented rights."""
    cluster, namespace = request.getfixturevalue("cluster"), request.getfixturevalue("namespace")
    account = service_account(cluster, namespace, rules())
    return World(
        backend=KubernetesBackend(config_of(account)),
        image=request.getfixturevalue("digits_image"),
        namespace=namespace,
        claim=partial(cluster.volume, namespace=namespace),
        annotate=Tenant(cluster, namespace).annotate,
        patience=PATIENCE,
        first_kept_run=2,
        prepare=Tenant(cluster, namespace).prepare,
    )
