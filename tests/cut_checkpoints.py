"""Cut checkpoints that the libraries themselves have written, and load what is found: `make soak-checkpoints`.

Beside an older, complete checkpoint lies a newer one that was cut at a random place (`tests/half_written.py`). What
is found must load in the library that has written it. A cut checkpoint that is skipped although its library loads it is
counted, too: that training would repeat some steps. The figures are in docs/reference/checkpoints.md.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import warnings
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import lightning
import safetensors.torch
import torch
import transformers
from torch.distributed import checkpoint as distributed

from half_written import copied, cut, found

if TYPE_CHECKING:
    from collections.abc import Callable

# ruff: noqa: S311 - it compares, and nothing here is secret
_TINY = {"n_layer": 1, "n_embd": 8, "n_head": 1, "vocab_size": 16, "n_positions": 8}
_IDS = {"bos_token_id": 0, "eos_token_id": 0}
_DATA = [{"input_ids": torch.arange(8), "labels": torch.arange(8)}] * 8


def state() -> dict[str, Any]:
    """Return a small state of a training."""
    model = torch.nn.Linear(20, 50)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(2, 20)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 7}


def gpt2() -> transformers.GPT2LMHeadModel:
    """Return a small language model."""
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**_TINY, **_IDS))


def trainer(folder: Path, steps: int) -> transformers.Trainer:
    """Return a Trainer that saves every second step."""
    options = transformers.TrainingArguments(
        str(folder),
        max_steps=steps,
        save_steps=2,
        per_device_train_batch_size=1,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        logging_strategy="no",
    )
    return transformers.Trainer(gpt2(), options, train_dataset=_DATA)


class Regression(lightning.LightningModule):
    """A small model of Lightning."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        """Return the loss."""
        return self.layer(batch[0]).pow(2).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.Adam(self.parameters())


def fitted(steps: int, checkpoint: Path | None = None) -> lightning.Trainer:
    """Train with Lightning, from a checkpoint if there is one."""
    off = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    fitting = lightning.Trainer(max_steps=steps, accelerator="cpu", devices=1, **off)
    rows = torch.utils.data.TensorDataset(torch.randn(8, 4))
    fitting.fit(Regression(), torch.utils.data.DataLoader(rows, batch_size=2), ckpt_path=checkpoint)
    return fitting


@dataclass(frozen=True, kw_only=True)
class Format:
    """One format of checkpoints.

    Attributes:
        names: name of the older and of the newer checkpoint.
        write: writes a checkpoint.
        load: loads a checkpoint, or raises.
    """

    names: tuple[str, str]
    write: Callable[[Path], Any]
    load: Callable[[Path], Any]


def resumed(checkpoint: Path) -> None:
    """Let Trainer go on from a checkpoint of step 4."""
    with tempfile.TemporaryDirectory() as folder:
        trainer(Path(folder), 5).train(resume_from_checkpoint=str(checkpoint))


def trained(place: Path) -> None:
    """Let Trainer write a checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        trainer(Path(folder), 4).train()
        (Path(folder) / "checkpoint-4").rename(place)


def from_shards(checkpoint: Path) -> None:
    """Let transformers load a model of shards."""
    transformers.GPT2LMHeadModel.from_pretrained(checkpoint, local_files_only=True)


def save_old(place: Path) -> None:
    """Write torch.save's old format."""
    torch.save(state(), place, _use_new_zipfile_serialization=False)


FORMATS = {
    "torch.save": Format(names=("a.pt", "b.pt"), write=lambda place: torch.save(state(), place), load=torch.load),
    "torch.save, before 1.6": Format(names=("a.pt", "b.pt"), write=save_old, load=torch.load),
    "torch.distributed.checkpoint": Format(
        names=("step_2", "step_4"),
        write=lambda place: distributed.save(state(), checkpoint_id=place),
        load=lambda place: distributed.load(state(), checkpoint_id=place),
    ),
    "Trainer of transformers": Format(names=("checkpoint-2", "checkpoint-4"), write=trained, load=resumed),
    "Lightning": Format(
        names=("step=2.ckpt", "step=4.ckpt"),
        write=lambda place: fitted(4).save_checkpoint(place),
        load=lambda place: fitted(5, place),
    ),
    "safetensors": Format(
        names=("a.safetensors", "b.safetensors"),
        write=lambda place: safetensors.torch.save_file(state()["model"], place),
        load=safetensors.torch.load_file,
    ),
    "safetensors with an index": Format(
        names=("a", "b"), write=lambda place: gpt2().save_pretrained(place, max_shard_size="2KB"), load=from_shards
    ),
}


def loads(each: Format, checkpoint: Path) -> bool:
    """Return whether the library loads a checkpoint."""
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        try:
            each.load(checkpoint)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            return False
        return True


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    """Cut and look, and return 1 if something was found that does not load."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="cuts of each format")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    wrong = 0
    for name, each in FORMATS.items():
        random, newer, too_strict = Random(options.seed), 0, 0
        with tempfile.TemporaryDirectory() as folder:
            written = Path(folder) / each.names[1]
            with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
                each.write(written)
            assert loads(each, written)
            for number in range(options.count):
                top = Path(folder) / str(number) / "checkpoints"
                top.mkdir(parents=True)
                copied(written, top / each.names[0], is_old=True)
                what = cut(copied(written, top / each.names[1]), random)
                path = found(top)
                if path is None or not loads(each, top / path):
                    wrong += 1
                    say(f"WRONG {name}, cut {number}: {what}; found {path}")
                newer += path == each.names[1]
                too_strict += path != each.names[1] and loads(each, top / each.names[1])
        counted = f"the cut one was found {newer} times, and skipped although it loads {too_strict} times"
        say(f"{name}: {options.count} cuts, {counted}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
