"""Tests of the provider's metadata for Airflow: it is valid, complete and true."""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.cncf.kubernetes.get_provider_info import get_provider_info as kubernetes_provider_info
from airflow.providers_manager import ProvidersManager

import ptjob_provider
from installed import ROOT
from ptjob_provider.airflow import config, hooks
from ptjob_provider.airflow.compat import AIRFLOW
from ptjob_provider.airflow.hooks import PyTorchJobHook
from ptjob_provider.core.run import options
from ptjob_provider.provider_info import OPTIONS, get_provider_info

INFO = get_provider_info()
KINDS = ("operators", "sensors", "hooks", "triggers")
MODULES = {name for kind in KINDS for entry in INFO[kind] for name in entry["python-modules"]}
NAMES = [each["class-name"] for each in INFO["task-decorators"]] + INFO["extra-links"]


def test_airflow_finds_and_accepts_the_provider() -> None:
    """Airflow's own manager has read the entry point and drops fields that its schema does not allow."""
    found = ProvidersManager().providers["ptjob-provider"]

    assert found.version == ptjob_provider.__version__
    assert found.data["config"]["ptjob"]["options"].keys() == OPTIONS.keys()


@pytest.mark.parametrize("path", [*sorted(MODULES), *NAMES])
def test_every_path_in_the_provider_info_can_be_imported(path: str) -> None:
    """Airflow imports them on demand."""
    assert pkgutil.resolve_name(path)


@pytest.mark.parametrize("path", [*INFO["integrations"][0]["how-to-guide"], INFO["integrations"][0]["logo"]])
def test_every_page_and_picture_that_it_lists_exists(path: str) -> None:
    assert (ROOT / path.removeprefix("/")).is_file()


def test_the_connections_form_has_a_field_for_all_that_is_read_of_it() -> None:
    """The form belongs to the cncf.kubernetes provider; a second form for the same type would only cause a warning."""
    (kubernetes,) = kubernetes_provider_info()["connection-types"]
    source = inspect.getsource(hooks)
    read = set(re.findall(r'_(?:text|switch)\("(\w+)"', source)) | {"kube_config"}

    assert "connection-types" not in INFO
    assert kubernetes["connection-type"] == PyTorchJobHook.conn_type
    assert read <= set(kubernetes["conn-fields"])
    assert len(read) == 7


def test_airflow_lists_every_option_with_its_default(tmp_path: Path) -> None:
    """Administrators read the defaults there; a number is declared as one."""
    command = ["airflow", "config", "list", "--section", "ptjob", "--defaults"]
    command += ["--show-values"] if AIRFLOW >= (3, 2) else []  # older ones always show them
    environment = {**os.environ, "AIRFLOW_HOME": str(tmp_path)}

    listed = subprocess.check_output([sys.executable, "-m", *command], env=environment, text=True)

    assert dict(re.findall(r"^# (\w+) = (.*)$", listed, re.MULTILINE)) == {
        name: each["default"] for name, each in OPTIONS.items()
    }
    numbers = {name for name, each in OPTIONS.items() if re.fullmatch(r"\d+", each["default"])}
    assert {name for name, each in OPTIONS.items() if each["type"] in {"integer", "float"}} == numbers


def test_every_adapter_module_with_a_public_part_is_listed() -> None:
    """A new public module cannot be forgotten in the metadata."""
    of_jobs = {f"ptjob_provider.airflow.{name}" for name in KINDS}
    assert of_jobs | {"ptjob_provider.retraining.operators", "ptjob_provider.retraining.triggers"} == MODULES


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
    """A trigger's row in Airflow's database has the import path of the version that wrote it."""
    old, new = (importlib.import_module(f"ptjob_provider.{module}") for module in (former, now))

    assert getattr(old, name) is getattr(new, name)


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_is_documented(name: str) -> None:
    option: dict[str, Any] = OPTIONS[name]

    assert len(option["description"]) > 20
    assert option["version_added"] == ptjob_provider.__version__
    assert option["default"] or option["example"]


def test_every_option_that_is_read_is_listed() -> None:
    files = [*Path(config.__file__).parent.glob("*.py"), Path(options.__file__)]
    source = "\n".join(path.read_text() for path in files)

    read = {name for name in OPTIONS if re.search(rf'\("{name}"', source)}

    assert read == set(OPTIONS)
