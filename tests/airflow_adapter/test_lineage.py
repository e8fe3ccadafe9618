"""Tests of the datasets that a training reports as inputs and outputs to OpenLineage."""

from __future__ import annotations

import pytest
from airflow.sdk import Asset, AssetAlias

from airflow_adapter.test_outlets import RESULT, TFEVENTS
from ptjob_provider.airflow.lineage import (
    MAX_DATASETS,
    LineageDataset,
    data_of,
    model_extra,
    outputs_of,
    place_of,
)


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("s3://bucket/incoming/b1", ("s3://bucket", "incoming/b1")),
        ("s3://bucket", ("s3://bucket", "/")),
        ("pvc://models/digits/7.pt", ("pvc://team/models", "digits/7.pt")),
        ("file:///data/in", ("file", "/data/in")),
        ("/data/in", ("file", "/data/in")),
        ("data/in", ("file", "data/in")),
        ("postgres://host:5432/db/table", ("postgres://host:5432", "db/table")),
    ],
)
def test_an_address_is_a_place(uri: str, expected: tuple[str, str]) -> None:
    """OpenLineage's dataset naming; a claim belongs to its namespace."""
    assert place_of(uri, "team") == expected


def test_inputs_are_the_inlets_and_the_reserved_folders_each_once() -> None:
    inlets = [Asset("in", uri="s3://bucket/in"), AssetAlias("any"), "text"]

    found = data_of(inlets, ["s3://bucket/in", "pvc://data/more"], "5-0f")

    assert found == [
        LineageDataset(namespace="s3://bucket", name="in", version="5-0f"),
        LineageDataset(namespace="pvc://data", name="more", version="5-0f"),
    ]
    assert len(data_of([], [f"s3://bucket/{number}" for number in range(1000)], "")) == MAX_DATASETS


def test_outputs_are_model_and_tfevents() -> None:
    assert outputs_of(model_extra(RESULT)) == [
        LineageDataset(namespace="pvc://team/models", name="7.pt", version="0f"),
        LineageDataset(namespace="pvc://team/runs", name="7", version="step 30"),
    ]


def test_undeclared_outputs_and_unknown_facts_are_not_in_the_lineage() -> None:
    (only,) = outputs_of(model_extra({**RESULT, "model": None, "tfevents": {**TFEVENTS, "last_step": None}}))

    assert only.version == ""
    assert outputs_of(model_extra({**RESULT, "model": None, "tfevents": None})) == []
