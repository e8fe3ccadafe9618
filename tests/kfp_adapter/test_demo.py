"""Run `make demo-kfp` from start to end."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import kfp
import pytest

from installed import ROOT

if TYPE_CHECKING:
    from pathlib import Path

IS_OLDEST = kfp.__version__.startswith("2.16.")


@pytest.mark.skipif(IS_OLDEST, reason="needs kfp 2.17, which the demonstration has")
def test_the_pipeline_trains_live_and_what_it_has_made_is_shown(tmp_path: Path) -> None:
    """The output has rank 0's lines, the accuracy and the location of the model."""
    command = [sys.executable, "-m", "demo.kfp", "--folder", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    said = done.stdout
    assert done.returncode == 0, said + done.stderr
    assert "epoch 12/12" in said
    assert "held_out/accuracy" in said.rpartition("finished with status")[2]
    (champion,) = tmp_path.glob("2*/jobs/claims/default/digits/champion/model.pt")
    assert f"the champion: {champion}" in said
    assert "executor_input" not in said
