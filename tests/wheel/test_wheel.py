"""The wheel: what is in it, what it asks for, and that it works where this tree has never been."""

from __future__ import annotations

import email
import json
import re
import zipfile
from typing import TYPE_CHECKING

import pytest

from installed import install

if TYPE_CHECKING:
    from pathlib import Path

    from installed import Installed

PROVIDER = """
import json
from airflow.providers_manager import ProvidersManager
provider = ProvidersManager().providers["ptjob-provider"]
print(json.dumps({"version": provider.version, "data": provider.data}))
"""
ROOT = "from ptjob_provider.airflow.config import Settings; print(Settings.load().local.root)"
DEFAULT = "import os; from ptjob_provider.cli.target import airflow_home; print(airflow_home(os.environ) / 'ptjob')"
WHERE = "import ptjob_provider.airflow.operators as module; print(module.__file__)"

pytestmark = pytest.mark.timeout(900)


def metadata(wheel: Path) -> email.message.Message:
    """Return the wheel's METADATA."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(archive.read(name))


def test_the_wheel_holds_the_package_its_types_marker_and_its_licence_and_nothing_else(wheel: Path) -> None:
    """Neither tests nor the demonstration are installed on anybody's machine."""
    names = zipfile.ZipFile(wheel).namelist()

    assert {name.split("/")[0] for name in names} == {"ptjob_provider", "ptjob_provider-0.1.0.dist-info"}
    assert "ptjob_provider/py.typed" in names
    assert "ptjob_provider-0.1.0.dist-info/licenses/LICENSE" in names


def test_the_extras_ask_for_what_they_are_for(wheel: Path) -> None:
    """Airflow and kfp are asked for by their extras only, with the floors that were measured."""
    said = metadata(wheel)
    required = [requirement.split(";") for requirement in said.get_all("Requires-Dist", [])]

    unconditional = {line[0].strip() for line in required if len(line) == 1}
    assert said.get_all("Provides-Extra") == ["airflow", "demo", "kfp", "openlineage", "s3"]
    assert {re.match(r"[\w-]+", name)[0] for name in unconditional} == {
        "aiohttp",
        "click",
        "dockerfile-parse",
        "kubernetes-asyncio",
        "pathspec",
        "psutil",
        "pyyaml",
        "rich",
    }
    assert ["apache-airflow<3.5,>=3.1", " extra == 'airflow'"] in required


def test_the_installed_package_is_the_wheels(installed_wheel: Installed) -> None:
    """What the other tests of the wheel see is not this tree."""
    assert installed_wheel.run("python", "-c", WHERE).startswith(str(installed_wheel.folder))


def test_airflow_finds_the_provider_with_what_it_brings(installed_wheel: Installed) -> None:
    """Airflow reads the entry point, its schema accepts what it says, and every module that it names is there."""
    printed = installed_wheel.run("python", "-c", PROVIDER).splitlines()[-1]
    provider = json.loads(printed)

    named = [
        module
        for part in ("operators", "sensors", "hooks", "triggers")
        for entry in provider["data"][part]
        for module in entry["python-modules"]
    ]
    assert provider["version"] == "0.1.0"
    assert "ptjob" in provider["data"]["config"]
    assert {name.removeprefix("ptjob_provider.") for name in named} == {
        *("airflow.operators", "airflow.sensors", "airflow.hooks", "airflow.triggers"),
        *("retraining.operators", "retraining.triggers"),
    }
    installed_wheel.run("python", "-c", "import " + ", ".join(named))


def test_airflow_knows_the_options_with_their_defaults(installed_wheel: Installed) -> None:
    """`airflow config` shows the section."""
    assert installed_wheel.run("airflow", "config", "get-value", "ptjob", "backend").splitlines()[-1] == "kubernetes"


def test_airflow_and_the_command_line_look_in_the_same_place(installed_wheel: Installed) -> None:
    """Whoever configured nothing finds the jobs of Airflow's tasks with `ptjob list`."""
    root = installed_wheel.run("python", "-c", ROOT, env={"AIRFLOW__PTJOB__BACKEND": "local"}).splitlines()[-1]

    assert installed_wheel.run("python", "-c", DEFAULT).splitlines()[-1] == root


def test_the_command_line_works_without_airflow(wheel: Path, tmp_path: Path) -> None:
    """The package without extras is whole: `ptjob` needs neither Airflow nor PyTorch."""
    bare = install(str(wheel), tmp_path / "venv")

    assert bare.run("ptjob", "--version") == "ptjob, version 0.1.0\n"
    assert json.loads(bare.run("ptjob", "--root", str(tmp_path / "jobs"), "list", "-o", "json")) == []
    assert (
        "airflow" not in bare.run("python", "-c", "import importlib.util as u; print(u.find_spec('airflow'))").lower()
    )
