"""Tests of the extra of a training's outlet events: plain JSON of a bounded size."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.lineage.entities import File
from airflow.sdk import Asset, AssetAlias
from airflow.sdk.execution_time.context import OutletEventAccessors

from airflow_adapter.stand_ins import ListLogger
from ptjob_provider.airflow.lineage import MAX_BYTES, model_extra, publish, revision_of

JOB = {"kind": "PyTorchJob", "namespace": "team", "name": "digits-1a2b", "uid": "u-1"}
MODEL = {"uri": "pvc://models/7.pt", "claim": "models", "path": "7.pt", "bytes": 5, "sha256": "0f"}
TFEVENTS = {"uri": "pvc://runs/7", "claim": "runs", "path": "7", "last_step": 30, "scalars": {"accuracy": 0.97}}
RESULT: dict[str, Any] = {
    "job": JOB,
    "attempt": 2,
    "start": "2026-11-22T00:00:00Z",
    "end": "2026-11-22T00:01:00Z",
    "queue_seconds": 1.0,
    "run_seconds": 59.0,
    "restarts": 0,
    "gpu_seconds": 0.0,
    "model": {**MODEL, "container_path": "/models/7.pt"},
    "tfevents": {**TFEVENTS, "container_path": "/runs/7"},
}
REVISION = "9fceb02d0ae598e95dc970b74767f19372d61af8"


def test_the_extra_of_an_asset_event_has_every_known_fact() -> None:
    extra = model_extra(RESULT, data_version="5-0f", git_revision=REVISION)

    assert json.loads(json.dumps(extra)) == extra
    assert extra["model"] == MODEL
    assert extra["tfevents"] == {name: TFEVENTS[name] for name in ("uri", "claim", "path", "last_step")}
    assert extra["metrics"] == {"accuracy": 0.97}
    assert (extra["data_version"], extra["git_revision"]) == ("5-0f", REVISION)
    assert extra["job"] == {
        **JOB,
        "attempt": 2,
        "start": "2026-11-22T00:00:00Z",
        "end": "2026-11-22T00:01:00Z",
        "queue_seconds": 1.0,
        "run_seconds": 59.0,
        "restarts": 0,
        "gpu_seconds": 0.0,
    }


def test_unknown_facts_are_absent_from_the_extra_of_an_asset_event() -> None:
    extra = model_extra({**RESULT, "model": None, "tfevents": None})

    assert (extra["model"], extra["tfevents"], extra["metrics"]) == (None, None, {})
    assert not {"data_version", "git_revision", "left_out"} & set(extra)


@pytest.mark.parametrize(("tags", "left_out"), [(900, None), (5000, ["metrics"])])
def test_the_extra_is_bounded(tags: int, left_out: list[str] | None) -> None:
    """For any number of scalars; the extra says what was left out."""
    scalars = {f"layer/{number:040}/gradient": 0.5 for number in range(tags)}

    extra = model_extra({**RESULT, "tfevents": {**TFEVENTS, "scalars": scalars}})

    assert len(json.dumps(extra)) <= MAX_BYTES
    assert extra.get("left_out") == left_out
    assert extra["metrics"] == ({} if left_out else scalars)
    assert extra["model"] == MODEL
    assert extra["tfevents"]["last_step"] == 30


def test_an_asset_gets_it_and_an_alias_gets_the_model_as_an_asset() -> None:
    """Outlets keep the extras of their own writers; those that are no assets, such as OpenLineage's, are left alone."""
    asset, alias, events = Asset("digits-model"), AssetAlias("digits-models"), OutletEventAccessors()
    events[asset].extra["by"] = "somebody"
    extra = model_extra(RESULT)

    publish({"outlet_events": events}, [File(url="s3://models/7.pt"), asset, alias], extra, ListLogger())

    assert events[asset].extra == {"by": "somebody", **extra}
    (added,) = events[alias].asset_alias_events
    assert (added.dest_asset_key.uri, added.extra) == ("pvc://models/7.pt", extra)


@pytest.mark.parametrize("model", [None, {**MODEL, "uri": "airflow://models/7.pt"}])
def test_a_model_that_cannot_be_an_asset_fails_no_training(model: dict[str, Any] | None) -> None:
    alias, events, log = AssetAlias("digits-models"), OutletEventAccessors(), ListLogger()

    publish({"outlet_events": events}, [alias], model_extra({**RESULT, "model": model}), log)

    assert events[alias].asset_alias_events == []
    assert "the alias digits-models gets no asset" in log.text


@pytest.mark.parametrize(
    ("version", "expected"), [(REVISION, REVISION), ("f" * 64, "f" * 64), (None, None), ("v1.2", None), ("", None)]
)
def test_the_revision_is_that_of_the_bundle_if_it_is_a_commit(version: str | None, expected: str | None) -> None:
    assert revision_of(SimpleNamespace(bundle_instance=SimpleNamespace(version=version))) == expected


def test_the_dags_revision_is_none_of_code_from_another_repository() -> None:
    """Its pods may have fetched different commits of it."""
    ti = SimpleNamespace(bundle_instance=SimpleNamespace(version=REVISION))

    assert revision_of(ti, {"git": "https://git.example.com/team/train.git"}) is None
    assert revision_of(ti, "training") == REVISION


def test_a_task_without_a_bundle_has_no_revision() -> None:
    assert revision_of(SimpleNamespace()) is None
