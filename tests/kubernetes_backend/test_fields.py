"""Test that a real API server, with the webhooks of the operators, accepts and stores each field that we accept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cluster_world import config_of
from kubernetes_backend.dry_run import dry_run, lost
from kubernetes_backend.t9k_stand_in import serve
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.kubernetes.client.http import shared_client
from ptjob_provider.core.spec import TrainingJob
from same_fields import BASE, FIELDS, rendered

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cluster.boot import Cluster
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kubernetes.client.http import Client

ELSEWHERE = {"namespace", "manifest", "runtime", "kind"}
"""Identity, kind and location of the object: other tests cover them."""

VALUES: Mapping[str, Mapping[str, Any]] = {
    **{field: value for field, value in FIELDS.items() if field not in ELSEWHERE},
    "cpu": {"cpu": "500m"},  # as the server writes 0.5 cores
    "elastic": {"elastic_policy": {"min_replicas": 1, "max_replicas": 3, "max_restarts": 2, "rdzv_backend": "c10d"}},
}


def accepted(kind: str, namespace: str) -> Iterator[tuple[str, Manifest]]:
    """Yield each field that the kind supports, with the object of a job that has it."""
    for field, value in VALUES.items():
        try:
            yield field, rendered(TrainingJob.parse(**{**BASE, "kind": kind, "namespace": namespace, **value}))
        except InvalidSpec:
            continue


async def objections(client: Client, manifest: Manifest) -> list[str]:
    """Return the refusal of a manifest, or what the server does not store of it."""
    try:
        return list(lost(manifest, await dry_run(client, manifest)))
    except InvalidSpec as refusal:
        return [str(refusal)]


@pytest.mark.parametrize(("kind", "least"), [("PyTorchJob", 50), ("TrainJob", 32), ("PyTorchTrainingJob", 47)])
async def test_every_field_that_has_a_place_is_taken_and_kept(
    trained: Cluster, namespace: str, kind: str, least: int
) -> None:
    """Each by itself, with strict validation; T9k's kind is served with the fields of its API reference."""
    serve(trained)
    jobs = dict(accepted(kind, namespace))

    async with shared_client(config_of(trained.layout.kubeconfig)) as client:
        found = {field: await objections(client, job) for field, job in jobs.items()}

    assert {field: objection for field, objection in found.items() if objection} == {}
    assert len(found) >= least
