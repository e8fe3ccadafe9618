"""Tests of a local folder as a job's code, on each back-end: it is the program's working directory."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from contract.places import on_cluster, on_this_machine
from kubernetes_backend.finished import prepared_volume
from ptjob_provider.core.local.backend import LocalBackend
from ptjob_provider.core.run.outcome import Outcome

if TYPE_CHECKING:
    from pathlib import Path

    from contract.places import Place

TRAIN = """
import pathlib
from net import SIZE
pathlib.Path("written").mkdir()
print("trained", SIZE, sorted(path.name for path in pathlib.Path().iterdir() if path.name != "__pycache__"))
"""
COMMAND = {"command": ["python3", "train.py"]}


@pytest.fixture(params=["local", pytest.param("kubernetes", marks=pytest.mark.cluster)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Return each back-end in turn; the cluster's in a namespace of restricted pods, with the documented rights."""
    made = on_this_machine(tmp_path) if request.param == "local" else on_cluster(request, "code")
    return replace(made, fields={**made.fields, **COMMAND})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a program, a module, and a file with credentials."""
    found = tmp_path / "project"
    found.mkdir()
    (found / "train.py").write_text(TRAIN)
    (found / "net.py").write_text("SIZE = 3\n")
    (found / ".env").write_text("PASSWORD=tops3cret\n")
    return found


async def test_a_folder_is_trained_as_it_is_on_this_machine(
    place: Place, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The program imports from the folder and may write there; messages name the files left out and the version."""
    # The namespace refuses the operator's own init container of workers; test_trainjob_code.py has two pods.
    workers = 2 if isinstance(place.backend, LocalBackend) else 1

    conclusion, sink, _ = await place.run(code=str(folder), workers=workers)

    assert conclusion.outcome is Outcome.SUCCEEDED, conclusion
    assert sink.lines == ["trained 3 ['net.py', 'train.py', 'written']"]
    assert not (folder / "written").exists()
    revision = (conclusion.result or {})["code_revision"]
    assert revision["digest"].startswith("sha256:")
    assert (revision["commit"], revision["dirty"]) == (None, None)
    assert "code: left out .env: may have credentials" in caplog.text
    assert "tops3cret" not in json.dumps(conclusion.to_dict())


async def test_a_folder_of_ten_megabytes_is_trained(place: Place, folder: Path) -> None:
    """This holds for incompressible files, too; on a cluster they are in several Secrets."""
    (folder / "noise").write_bytes(os.urandom(10_000_000))
    (folder / "train.py").write_text("import pathlib; print(pathlib.Path('noise').stat().st_size)\n")

    conclusion, sink, _ = await place.run(code=str(folder))

    assert conclusion.outcome is Outcome.SUCCEEDED, conclusion
    assert sink.lines == ["10000000"]


@pytest.mark.cluster
@pytest.mark.parametrize("kind", ["PyTorchJob", "TrainJob"])
async def test_a_folder_of_thirty_megabytes_travels_over_a_claim(
    request: pytest.FixtureRequest, folder: Path, kind: str
) -> None:
    """With the rights of `ptjob data cp`, over the claim that the job mounts; it arrives unchanged."""
    place, noise = on_cluster(request, "kinds", "code", "data"), os.urandom(30_000_000)
    (folder / "noise").write_bytes(noise)
    (folder / "train.py").write_text(
        "import hashlib, pathlib; print(hashlib.sha256(pathlib.Path('noise').read_bytes()).hexdigest())\n"
    )
    prepared_volume(request.getfixturevalue("trained"), place.namespace)

    conclusion, sink, _ = await place.run(code=str(folder), kind=kind, volumes=["data:/data"], **COMMAND)

    assert conclusion.outcome is Outcome.SUCCEEDED, conclusion
    assert sink.lines == [hashlib.sha256(noise).hexdigest()]


async def test_a_folder_is_unpacked_where_the_job_works(place: Place, folder: Path) -> None:
    """It is unpacked into the job's working directory, whatever the image has there."""
    (folder / "train.py").write_text("import os; print(os.getcwd() == os.path.realpath(os.environ['WORK']))\n")

    conclusion, sink, _ = await place.run(code=str(folder), working_dir="/workspace", env={"WORK": "/workspace"})

    assert conclusion.outcome is Outcome.SUCCEEDED, conclusion
    assert sink.lines == ["True"]
