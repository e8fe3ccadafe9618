"""Notes on a claim of the cluster become runs: a real triggerer watches, with the documented Role, and is killed."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

import postgresql
import rbac
from airflow_cluster.conftest import HERE, PATIENCE, settings
from cluster.tenants import namespace_in, service_account
from cluster_world import Tenant
from demo.stack import Stack, StackConfig
from task_run import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cluster.boot import Cluster

NOTE = "ptjob.dev/arrived"
IMPATIENCE = {
    "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "2",
    "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "10",
}
"""A dead triggerer's watchers are given to the next one within seconds."""


@pytest.fixture
def tenant(cluster: Cluster) -> Iterator[Tenant]:
    """Have a namespace with a claim."""
    with namespace_in(cluster) as namespace:
        tenant = Tenant(cluster, namespace)
        tenant.claim("data")
        yield tenant


@pytest.fixture
def stack(cluster: Cluster, tenant: Tenant, tmp_path: Path, tell: Callable[[str], None]) -> Iterator[Stack]:
    """Have an Airflow whose connection may do in the namespace what the documentation says."""
    dags = tmp_path / "dags"
    shutil.copytree(HERE / "arrival_dags", dags, ignore=shutil.ignore_patterns("__pycache__"))
    access = service_account(cluster, tenant.namespace, rbac.rules())
    with postgresql.database_if_possible(tell) as address:
        config = StackConfig(
            home=tmp_path / "home",
            dags=dags,
            database_url=address,
            settings=settings(access, tenant.namespace, probe_image="none") | IMPATIENCE,
            paused_at_creation=False,
        )
        with Stack(config) as stack:
            stack.api.wait_for_dag("arrivals")
            yield stack


def told(stack: Stack) -> list[dict[str, Any]]:
    """Return the batches of all events that Airflow has, in their order.

    Not those of its runs: a run is told of events up to the first that made it, and another that comes before the
    scheduler has looked waits for the next one's run (seen on 3.3.2).
    """
    found = stack.api.asset_events() or ()
    return [batch for event in found for batch in event["extra"]["payload"]["batches"]]


def wait_for(stack: Stack, *uris: str) -> list[dict[str, Any]]:
    """Return what was told, once all of these were."""
    seen: list[dict[str, Any]] = []

    def are_told() -> bool:
        seen[:] = told(stack)
        return {batch["uri"] for batch in seen} >= set(uris)

    until(are_told, timeout=PATIENCE, what=f"events for {uris}", interval=1.0)
    return seen


def test_each_note_on_a_claim_starts_a_run_also_after_the_triggerer_was_killed(stack: Stack, tenant: Tenant) -> None:
    """What was told and taken before is not told again; what was noted meanwhile is told; nothing is written there."""
    tenant.annotate("data", {NOTE: "incoming/1"})
    before = wait_for(stack, "pvc://data/incoming/1")
    tenant.annotate("data", {f"{NOTE}.2": json.dumps({"path": "incoming/2", "files": 3, "bytes": 17})})
    wait_for(stack, "pvc://data/incoming/2")  # the watermark of the first is written by now

    stack["triggerer"].kill()
    tenant.annotate("data", {NOTE: "incoming/4", f"{NOTE}.3": "incoming/3"})
    stack["triggerer"].start()
    after = wait_for(stack, "pvc://data/incoming/3", "pvc://data/incoming/4")

    until(lambda: len(stack.api.runs("arrivals")) >= 2, timeout=PATIENCE, what="a run for what came later")
    runs = stack.api.runs("arrivals")
    first = min(runs, key=lambda run: str(run["run_after"]))["dag_run_id"]
    assert stack.api.wait_for_run("arrivals", first, timeout=PATIENCE) == "success"
    assert stack.api.xcom("arrivals", first, "tell")[0]["batches"] == before

    ids = [batch["id"] for batch in after]
    assert after[:1] == before
    assert ids.count(before[0]["id"]) == 1
    assert [(batch["files"], batch["bytes"]) for batch in after if batch["uri"].endswith("/2")][:1] == [(3, 17)]
    assert {batch["uri"] for batch in after} == {f"pvc://data/incoming/{number}" for number in (1, 2, 3, 4)}
    noted = {key for key in tenant.annotations("data") if key.startswith("ptjob")}
    assert noted == {NOTE, f"{NOTE}.2", f"{NOTE}.3"}
