"""Tests of the programs of docker/digits as local processes, with the environment that a PyTorchJob gives its pods."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from digits.programs import NEEDED, TRAIN, end, points, run, run_ranks, started_ranks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from digits.programs import Ended

EPOCHS = 12  # the program's default

pytestmark = NEEDED


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A complete training with two ranks, and its outputs."""

    ranks: Sequence[Ended]
    model: Path
    log_dir: Path
    checkpoints: Path

    @property
    def parameters(self) -> str:
        """The hash of the final parameters."""
        return self.ranks[0].find(r"parameters agree on 2 ranks: ([0-9a-f]{64})")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    root = tmp_path_factory.mktemp("trained")
    model, log_dir, checkpoints = root / "models" / "model.pt", root / "logs", root / "checkpoints"
    places = ("--save_path", model, "--log_dir", log_dir, "--checkpoint_dir", checkpoints)
    return Trained(ranks=run_ranks(TRAIN, *places), model=model, log_dir=log_dir, checkpoints=checkpoints)


def test_two_ranks_train_a_model_and_write_the_accuracy_that_rank_0_prints(trained: Trained) -> None:
    accuracy = float(trained.ranks[0].find(r"held-out accuracy (\S+) \("))

    assert [rank.code for rank in trained.ranks] == [0, 0]
    assert points(trained.log_dir, "held_out/accuracy")[EPOCHS] == pytest.approx(accuracy, abs=1e-4)


def test_every_epoch_leaves_its_scalars_and_a_checkpoint(trained: Trained) -> None:
    """One point per epoch, a falling loss, and no unfinished file."""
    losses = points(trained.log_dir, "train/loss")

    assert sorted(losses) == sorted(points(trained.log_dir, "held_out/accuracy")) == list(range(1, EPOCHS + 1))
    assert losses[EPOCHS] < losses[1] / 10
    expected = {f"epoch-{epoch:04d}.pt" for epoch in range(1, EPOCHS + 1)}
    assert {path.name for path in trained.checkpoints.iterdir()} == expected
    assert [path.name for path in trained.model.parent.iterdir()] == ["model.pt"]


def test_without_the_exchange_of_gradients_the_training_fails(tmp_path: Path) -> None:
    """Each rank compares the hashes of all ranks, which proves that the training is distributed."""
    wrapper = Path(__file__).with_name("no_gradient_exchange.py")

    ranks = run_ranks(wrapper, TRAIN, "--epochs", "1", "--save_path", tmp_path / "model.pt")

    assert [rank.code for rank in ranks] == [1, 1]
    for rank in ranks:
        assert re.search(r"parameters differ between ranks \(rank 0: \w{16}, rank 1: \w{16}\)", rank.output)
    assert not (tmp_path / "model.pt").exists()


def test_a_finished_training_does_not_fail_if_the_interpreters_exit_aborts(tmp_path: Path) -> None:
    """DistributedDataParallel leaves threads of the destroyed group behind (PyTorch 2.15, Gloo), over which it may."""
    wrapper = Path(__file__).with_name("aborting_exit.py")

    ranks = run_ranks(wrapper, TRAIN, "--epochs", "1", "--save_path", tmp_path / "model.pt")

    assert [rank.code for rank in ranks] == [0, 0]


def test_a_training_goes_on_from_the_newest_checkpoint_as_if_it_had_never_stopped(
    trained: Trained, tmp_path: Path
) -> None:
    """Only the missing epochs are trained, and the final parameters equal those of an uninterrupted training."""
    for epoch in (9, 10):
        shutil.copy(trained.checkpoints / f"epoch-{epoch:04d}.pt", tmp_path)
    (tmp_path / ".epoch-0011.pt.unfinished").write_bytes(b"what a killed process leaves")

    ranks = run_ranks(TRAIN, "--checkpoint_dir", tmp_path, "--log_dir", tmp_path / "logs")

    assert [rank.code for rank in ranks] == [0, 0]
    assert f"resumed from {tmp_path} after epoch 10" in ranks[0].output
    assert sorted(points(tmp_path / "logs", "train/loss")) == [11, 12]
    assert ranks[0].find(r"parameters agree on 2 ranks: (\w+)") == trained.parameters


def test_a_training_with_nothing_left_to_do_still_keeps_its_outputs(trained: Trained, tmp_path: Path) -> None:
    """A finished training, started again alone and configured by variables, writes the same model and scalars."""
    shutil.copy(trained.checkpoints / f"epoch-{EPOCHS:04d}.pt", tmp_path)
    places = {
        "PTJOB_MODEL_PATH": str(tmp_path / "model.pt"),
        "PTJOB_TFEVENTS_DIR": str(tmp_path / "logs"),
        "PTJOB_CHECKPOINT_DIR": str(tmp_path),
    }

    ended = run(TRAIN, env=places)

    assert ended.code == 0
    assert ended.find(r"parameters agree on 1 ranks: (\w+)") == trained.parameters
    assert (tmp_path / "model.pt").read_bytes() == trained.model.read_bytes()
    assert list(points(tmp_path / "logs", "held_out/accuracy")) == [EPOCHS]


def test_a_killed_rank_ends_the_other() -> None:
    """The other rank fails within seconds, so that the job fails instead of hanging."""
    with started_ranks(TRAIN, "--epochs", "100000", "--log-interval", "1") as (first, second):
        assert first.stdout is not None
        assert any("step 1/" in line for line in first.stdout)

        second.kill()

        assert end(first, timeout=60).code == 1
        assert end(second).code == -9


def test_a_number_that_cannot_be_is_refused() -> None:
    ended = run(TRAIN, "--epochs", "0")

    assert ended.code == 2
    assert "argument --epochs: 0 is not allowed; allowed: above 0" in ended.output
