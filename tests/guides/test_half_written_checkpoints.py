"""Tests that what is found beside a half-written checkpoint loads in PyTorch; `make soak-checkpoints` has all formats.

The files of Trainer and Lightning were recorded; those of safetensors need its library, and are in the soak only.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from cluster.fixtures import import_or_skip
from half_written import copied, cut, files_of, found

if TYPE_CHECKING:
    from collections.abc import Callable

CUTS = 200
RECORDED = Path(__file__).parents[1] / "core/recorded_checkpoints"
torch = import_or_skip("torch")


def state() -> dict[str, Any]:
    """Return a small state of a training."""
    return {"model": {"w": torch.randn(50, 20), "b": torch.zeros(20).half()}, "step": 7}


def save_distributed(place: Path) -> None:
    from torch.distributed import checkpoint  # noqa: PLC0415 - PyTorch may be missing

    checkpoint.save(state(), checkpoint_id=place)


def load_distributed(place: Path) -> None:
    from torch.distributed import checkpoint  # noqa: PLC0415 - as above

    checkpoint.load(state(), checkpoint_id=place)


def load_files(place: Path) -> None:
    """Load each of a checkpoint's files that PyTorch has written."""
    for path in files_of(place):
        if path.suffix in {".pt", ".pth", ".ckpt"}:
            torch.load(path, weights_only=False)


@pytest.mark.filterwarnings("ignore")  # of torch.distributed without a group
@pytest.mark.parametrize(
    ("names", "write", "load"),
    [
        (("a.pt", "b.pt"), lambda place: torch.save(state(), place), load_files),
        (
            ("a.pt", "b.pt"),
            lambda place: torch.save(state(), place, _use_new_zipfile_serialization=False),
            load_files,
        ),
        (("step_2", "step_4"), save_distributed, load_distributed),
        (("a.ckpt", "b.ckpt"), lambda place: copied(RECORDED / "lightning/step=4.ckpt", place), load_files),
        (("checkpoint-2", "checkpoint-4"), lambda place: copied(RECORDED / "trainer/checkpoint-4", place), load_files),
    ],
    ids=["torch.save", "before 1.6", "distributed", "Lightning", "Trainer"],
)
def test_what_is_found_beside_a_half_written_checkpoint_loads(
    names: tuple[str, str], write: Callable[[Path], object], load: Callable[[Path], None], tmp_path: Path
) -> None:
    """Cut at 200 random places, every second time without the files that were written later."""
    random, whole = Random(35), tmp_path / names[1]  # noqa: S311 - cuts, no secrets
    write(whole)
    chosen = []
    for number in range(CUTS):
        top = tmp_path / f"cut-{number}"
        top.mkdir()
        copied(whole, top / names[0], is_old=True)
        cut(copied(whole, top / names[1]), random)
        path = found(top)
        assert path in names
        chosen.append(path)
        if number % 20 == 0 or path == names[1]:
            load(top / path)

    assert chosen.count(names[0]) > CUTS * 0.9
