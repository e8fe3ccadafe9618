"""Test that the real API server and Trainer's webhook accept and store each TrainJob field that we accept."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kubernetes_backend.dry_run import dry_run, lost
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.kubernetes.client.http import shared_client
from ptjob_provider.core.spec import TrainingJob
from same_fields import FIELDS, rendered

if TYPE_CHECKING:
    from kubernetes_backend.trainjobs import Lab
    from ptjob_provider.core.identity import Manifest

USUAL: dict[str, Any] = {"name": "digits", "image": "digits:1", "workers": 2, "kind": "TrainJob"}
ELSEWHERE = {"namespace", "manifest", "runtime"}
"""Identity and location of the object: other tests cover them."""

NO_PLACE = {
    *("backoff_limit", "clean_pod_policy", "code", "elastic_policy", "env_from", "gang", "host_network"),
    *("image_pull_policy", "init_containers", "master", "pod_template", "priority_class_name", "restart_policy"),
    *("scheduler_name", "ttl_seconds_after_finished", "worker", "working_dir"),
}
"""Fields that we refuse by name."""


def given(field: str) -> dict[str, Any]:
    """Return arguments with this field."""
    values = {"cpu": "500m"} if field == "cpu" else FIELDS[field]  # as the server writes 0.5 cores
    return {**USUAL, **{name: part for name, part in values.items() if name != "kind"}}


def accepted() -> dict[str, Manifest]:
    """Return the object for each field that a TrainJob supports."""
    found = {}
    for field in set(FIELDS) - ELSEWHERE:
        try:
            found[field] = rendered(TrainingJob.parse(**given(field)))
        except InvalidSpec:
            continue
    return found


def test_every_field_that_has_a_place_is_taken_and_kept(lab: Lab) -> None:
    """Each by itself, with strict validation; node selection, volumes and similar are patches of the runtime."""

    async def ask(manifest: Manifest) -> list[str]:
        manifest["metadata"]["namespace"] = lab.namespace
        async with shared_client(lab.config) as client:
            try:
                return list(lost(manifest, await dry_run(client, manifest)))
            except InvalidSpec as refusal:
                return [str(refusal)]

    found = {field: asyncio.run(ask(manifest)) for field, manifest in sorted(accepted().items())}

    assert {field: objections for field, objections in found.items() if objections} == {}
    assert set(FIELDS) - ELSEWHERE - set(found) == NO_PLACE
