"""Tests of finding the mounted claim of an output in a step on a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ptjob_provider.core.errors import UnsupportedByBackend
from ptjob_provider.kfp import claim_paths, step
from ptjob_provider.kfp.claim_paths import find_output

if TYPE_CHECKING:
    from pathlib import Path

    from kfp_adapter.conftest import LocalStep

ADDRESS = "pvc://models/run-1/m.pt"


@pytest.fixture
def mnt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that replaces `/mnt/outputs`."""
    monkeypatch.setattr(claim_paths, "MOUNT_ROOT", str(tmp_path))  # the real path is in a container
    return tmp_path


@pytest.mark.parametrize(("mounted", "found"), [(["models", "_claim"], "models"), (["old", "_claim"], "_claim")])
def test_a_claim_is_found_under_its_name_or_at_its_own_mount(mnt: Path, mounted: list[str], found: str) -> None:
    """A claim that is mounted under another name is not used; the output itself need not exist yet."""
    for name in mounted:
        (mnt / name).mkdir()

    assert find_output(ADDRESS, environ={}) == mnt / found / "run-1" / "m.pt"


def test_of_several_mounts_the_one_that_has_the_output_is_used(mnt: Path) -> None:
    """If two of them have it, the error names the expected path and the function that mounts the claim."""
    for name in ("_new", "_old"):
        (mnt / name / "run-1").mkdir(parents=True)
    (mnt / "_old" / "run-1" / "m.pt").touch()

    assert find_output(ADDRESS, environ={}) == mnt / "_old" / "run-1" / "m.pt"
    (mnt / "_new" / "run-1" / "m.pt").touch()
    with pytest.raises(UnsupportedByBackend, match=r"models is not mounted at \S+/models: handover.mount_model"):
        find_output(ADDRESS, environ={})


def test_a_copying_step_without_its_claim_fails_before_it_trains(
    local_step: LocalStep, capsys: pytest.CaptureFixture[str]
) -> None:
    given = local_step.given("", model=ADDRESS, model_artifact="copy")

    with pytest.raises(SystemExit) as ended:
        step.run(given, {})

    assert ended.value.code == step.EXIT_USAGE
    assert capsys.readouterr().out.startswith("model_artifact: a step that copies sees its model's claim at")
