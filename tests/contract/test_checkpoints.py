"""Tests of the checkpoint from which a second attempt goes on, on each back-end."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from ptjob_provider.core.errors import OutputsNotVerified
from ptjob_provider.core.outputs.contract import ResolvedOutput
from worlds import STATE, World, has_ended

if TYPE_CHECKING:
    from ptjob_provider.core.outputs.checkpoints import Checkpoint

FOLDER = ResolvedOutput(uri="pvc://state/ckpt", claim="state", path="ckpt", container_path="/state/ckpt")
WRITES = """
import os, pathlib, zipfile
folder = pathlib.Path(os.environ["PTJOB_CHECKPOINT_DIR"])
folder.mkdir(exist_ok=True)
with zipfile.ZipFile(folder / "step-2.pt", "w") as file:
    file.writestr("archive/data.pkl", b".")
(folder / "step-3.pt").write_bytes((folder / "step-2.pt").read_bytes()[:20])
"""


async def found(world: World, folder: ResolvedOutput = FOLDER, *, program: str = WRITES, ahead: int = 0) -> Checkpoint:
    """Return what is found below the folder after a job has run; `ahead`: seconds after its start."""
    container = {**STATE["container"], "env": [{"name": "PTJOB_CHECKPOINT_DIR", "value": "/state/ckpt"}]}
    manifest = world.job("writes", program, container=container, pod=STATE["pod"])
    since = datetime.now(UTC) + timedelta(seconds=ahead)
    await world.observe(await world.submit(manifest), has_ended)
    return await world.backend.find_checkpoint(manifest, folder, since=since.replace(microsecond=0))


async def test_the_newest_complete_checkpoint_is_found_on_the_claim(world: World) -> None:
    """The newer one is half-written."""
    checkpoint = await found(world)

    assert (checkpoint.path, checkpoint.step) == ("step-2.pt", 2)
    [[skipped, why]] = checkpoint.skipped
    assert skipped == "step-3.pt"
    assert "is cut" in why


async def test_a_checkpoint_from_before_the_first_attempt_is_not_used(world: World) -> None:
    """By the clock of the storage, for which a cluster allows two minutes."""
    checkpoint = await found(world, ahead=1000)

    assert (checkpoint.path, checkpoint.older) == (None, 2)


async def test_a_folder_that_no_attempt_has_made_has_no_checkpoint(world: World) -> None:
    assert (await found(world, program="print('failed early')")).path is None


async def test_a_folder_that_cannot_be_looked_at_is_no_empty_folder(world: World) -> None:
    """It leads out of its claim."""
    leads_out = "import os; os.symlink('/', '/state/ckpt')"

    with pytest.raises(OutputsNotVerified):
        await found(world, program=leads_out)
    with pytest.raises(OutputsNotVerified):
        await world.backend.find_checkpoint(
            world.job("writes", "pass"), replace(FOLDER, claim="..", path="x"), since=datetime.now(UTC)
        )
