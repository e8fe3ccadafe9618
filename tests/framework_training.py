"""Train a tiny model for a minute with a framework, and write each step that was taken to the file `$TRUTH`.

    python framework_training.py trainer|lightning|accelerate

It runs in an environment that has the frameworks: `make soak-checkpoints` makes one.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

STEPS = 240
_EPOCHS = 3
_SECONDS = 0.2
_TINY = {"n_layer": 1, "n_embd": 8, "n_head": 1, "vocab_size": 16, "n_positions": 8}
_IDS = {"bos_token_id": 0, "eos_token_id": 0}


def took(step: int, total: int, loss: float) -> None:
    """Note a step, after the time that it takes."""
    time.sleep(_SECONDS)
    with Path(os.environ["TRUTH"]).open("a") as file:
        file.write(json.dumps({"at": time.time(), "step": step, "total": total, "loss": loss}) + "\n")


def trainer() -> None:
    """Train with Hugging Face's Trainer, which evaluates after each epoch."""
    import transformers  # noqa: PLC0415 - each framework takes seconds

    class Steps(transformers.TrainerCallback):
        loss = 0.0

        def on_step_end(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
            took(state.global_step, state.max_steps, self.loss)

        def on_log(self, *_: Any, logs: dict[str, float], **__: Any) -> None:
            self.loss = logs.get("loss", self.loss)

    data = [{"input_ids": torch.arange(8), "labels": torch.arange(8)}] * (STEPS // _EPOCHS)
    with tempfile.TemporaryDirectory() as folder:
        options = transformers.TrainingArguments(
            folder,
            num_train_epochs=_EPOCHS,
            per_device_train_batch_size=1,
            logging_steps=10,
            eval_strategy="epoch",
            use_cpu=True,
            report_to=[],
            save_strategy="no",
        )
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**_TINY, **_IDS))
        transformers.Trainer(model, options, train_dataset=data, eval_dataset=data[:9], callbacks=[Steps()]).train()


def rows(count: int) -> torch.utils.data.DataLoader[Any]:
    """Return random data."""
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(count, 4)))


def fit() -> None:
    """Train with Lightning, whose bar counts the steps of each epoch."""
    import lightning  # noqa: PLC0415 - each framework takes seconds

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 2)

        def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
            loss = self.layer(batch[0]).pow(2).mean()
            self.log("train_loss", loss, prog_bar=True)
            took(index + 1, STEPS // _EPOCHS, float(loss.detach()))
            return loss

        def validation_step(self, batch: list[torch.Tensor], _: int) -> None:
            time.sleep(_SECONDS)
            self.log("val_loss", self.layer(batch[0]).pow(2).mean(), prog_bar=True)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters())

    bar = lightning.pytorch.callbacks.TQDMProgressBar()
    off = {"logger": False, "enable_checkpointing": False}
    training = lightning.Trainer(max_epochs=_EPOCHS, accelerator="cpu", devices=1, callbacks=[bar], **off)
    training.fit(Model(), rows(STEPS // _EPOCHS), rows(9))


def accelerate() -> None:
    """Train as the examples of Accelerate do."""
    from accelerate import Accelerator  # noqa: PLC0415 - each framework takes seconds

    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model, optimizer, loader = accelerator.prepare(model, optimizer, rows(STEPS))
    with tqdm(loader, desc="Steps", disable=not accelerator.is_local_main_process) as bar:
        for step, batch in enumerate(bar, start=1):
            loss = model(batch[0]).pow(2).mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            took(step, STEPS, loss.item())
            bar.set_postfix(step_loss=loss.item())


if __name__ == "__main__":
    {"trainer": trainer, "lightning": fit, "accelerate": accelerate}[sys.argv[1]]()
