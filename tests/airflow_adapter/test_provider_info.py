"""What Airflow is told about this provider is valid, complete and true."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
from airflow.providers_manager import ProvidersManager

import ptjob_provider
from ptjob_provider.airflow import config
from ptjob_provider.core.run import options
from ptjob_provider.provider_info import OPTIONS, get_provider_info

INFO = get_provider_info()
KINDS = ("operators", "sensors", "hooks", "triggers")


def test_airflow_finds_and_accepts_the_provider() -> None:
    """Its own manager has read the entry point, against its own schema."""
    found = ProvidersManager().providers["ptjob-provider"]

    assert found.version == ptjob_provider.__version__
    assert found.data["config"]["ptjob"]["options"].keys() == OPTIONS.keys()


def test_it_is_valid_by_airflows_schema() -> None:
    """Airflow only warns about a provider that is not, and leaves it out."""
    ProvidersManager()._provider_schema_validator.validate(INFO)


@pytest.mark.parametrize("kind", KINDS)
def test_every_module_that_it_lists_exists(kind: str) -> None:
    """Each can be imported."""
    modules = [importlib.import_module(name) for entry in INFO[kind] for name in entry["python-modules"]]

    assert modules


def test_every_link_that_it_lists_exists() -> None:
    """Airflow imports them when the page of a task is shown."""
    for path in INFO["extra-links"]:
        module, _, name = path.rpartition(".")
        assert hasattr(importlib.import_module(module), name)


def test_every_adapter_module_with_a_public_part_is_listed() -> None:
    """Nobody adds a sensor that Airflow does not know."""
    listed = {name for kind in KINDS for entry in INFO[kind] for name in entry["python-modules"]}

    of_jobs = {f"ptjob_provider.airflow.{name}" for name in KINDS}
    assert listed == of_jobs | {"ptjob_provider.retraining.operators", "ptjob_provider.retraining.triggers"}


@pytest.mark.parametrize(
    ("former", "now", "name"),
    [
        ("airflow.data_arrival", "retraining.triggers", "DataArrivalTrigger"),
        ("airflow.claim_arrival", "retraining.triggers", "ClaimArrivalTrigger"),
        ("airflow.ledger", "retraining.operators", "ClaimBatchesOperator"),
        ("airflow.ledger", "retraining.operators", "DataLedger"),
    ],
)
def test_a_former_path_leads_to_the_class(former: str, now: str, name: str) -> None:
    """A trigger's row in Airflow's database has the path of the version that wrote it."""
    old, new = (importlib.import_module(f"ptjob_provider.{module}") for module in (former, now))

    assert getattr(old, name) is getattr(new, name)


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_is_documented(name: str) -> None:
    """With a description, an example or a default, and the version that brought it."""
    option: dict[str, Any] = OPTIONS[name]

    assert len(option["description"]) > 20
    assert option["version_added"] == ptjob_provider.__version__
    assert option["default"] or option["example"]


def test_every_option_that_is_read_is_listed() -> None:
    """And none is listed that nobody reads."""
    files = [*Path(config.__file__).parent.glob("*.py"), Path(options.__file__)]
    source = "\n".join(path.read_text() for path in files)

    read = {name for name in OPTIONS if re.search(rf'\("{name}"', source)}

    assert read == set(OPTIONS)
