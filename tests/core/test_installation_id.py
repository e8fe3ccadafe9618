"""Tests of the id of an Airflow installation, which is stored in Variables."""

from __future__ import annotations

import pytest

from ptjob_provider.core.identity import Instance
from ptjob_provider.core.installation_id import KEY_PREFIX, instance_of, origin_mismatch, origin_of

PRODUCTION = origin_of("https://airflow.example.com", "", "airflow")
STAGING = origin_of("https://staging.example.com", "", "airflow")
KEYS = [f"{KEY_PREFIX}{name}" for name in ("c4", "a1", "b2")]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ([], None),
        (["training_data"], None),
        (KEYS[:1], Instance("c4")),
        (KEYS, Instance("a1", frozenset({"b2", "c4"}))),
    ],
)
def test_every_id_that_is_there_is_the_installations(keys: list[str], expected: Instance | None) -> None:
    """New jobs get the first id; two workers may have created one each."""
    assert instance_of(keys) == expected


def test_an_id_fits_where_it_was_made() -> None:
    assert origin_mismatch(dict.fromkeys(KEYS, PRODUCTION), PRODUCTION) == ""
    assert origin_mismatch({}, STAGING) == ""
    assert origin_of("", "", "") == "an Airflow without [api] base_url"


def test_the_warning_about_an_id_from_elsewhere_names_both_ways_out() -> None:
    """A copy gets its own id; an installation that moved keeps its id."""
    why = origin_mismatch(dict.fromkeys(KEYS, PRODUCTION), STAGING)

    assert "was made elsewhere: [api] base_url https://airflow.example.com, the pods' namespace airflow; here is" in why
    assert all(f"airflow variables delete {key}" in why for key in KEYS)
    assert all(f"airflow variables set {key} '{STAGING}'" in why for key in KEYS)
