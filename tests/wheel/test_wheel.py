"""Tests of the wheel: its contents, and that it works without this tree."""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING

from cluster.fixtures import skip_because
from installed import install, unbuilt_page

if TYPE_CHECKING:
    from pathlib import Path

    from installed import Installed

PROVIDER = """
import json
from airflow.providers_manager import ProvidersManager
provider = ProvidersManager().providers["ptjob-provider"]
print(json.dumps({"version": provider.version, "data": provider.data}))
"""

FOLDER = "training_page"


def test_the_wheel_holds_the_package_its_types_marker_and_its_licence_and_nothing_else(wheel: Path) -> None:
    """Tests and the demonstration are not installed."""
    names = zipfile.ZipFile(wheel).namelist()

    assert {name.split("/")[0] for name in names} == {"ptjob_provider", "ptjob_provider-0.1.0.dist-info"}
    assert "ptjob_provider/py.typed" in names
    assert "ptjob_provider-0.1.0.dist-info/licenses/LICENSE" in names


def test_the_wheel_holds_the_training_page_and_the_licence_of_what_is_bundled(wheel: Path) -> None:
    """Its sources are not installed."""
    skip_because(unbuilt_page())
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist() if f"/{FOLDER}/" in name}

    assert {name.rpartition(f"/{FOLDER}/")[2] for name in files} == {
        *("__init__.py", "built/index.html", "built/page.css", "built/page.js")
    }
    assert sum(map(len, files.values())) < 150_000
    for notice in (b"The MIT License", b"Copyright (c) 2022 Leon Sorokin", b"THE SOFTWARE IS PROVIDED"):
        assert notice in files[f"ptjob_provider/airflow/{FOLDER}/built/page.js"]


def test_airflow_finds_the_provider_with_what_it_brings(installed_wheel: Installed) -> None:
    """Airflow reads the entry point, accepts its schema, and can import every module that it names."""
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


def test_the_command_line_works_without_airflow(wheel: Path, tmp_path: Path) -> None:
    """The package without extras is complete: `ptjob` needs neither Airflow nor PyTorch."""
    bare = install(str(wheel), tmp_path / "venv")

    assert bare.run("ptjob", "--version") == "ptjob, version 0.1.0\n"
    assert json.loads(bare.run("ptjob", "--root", str(tmp_path / "jobs"), "list", "-o", "json")) == []
    assert (
        "airflow" not in bare.run("python", "-c", "import importlib.util as u; print(u.find_spec('airflow'))").lower()
    )
