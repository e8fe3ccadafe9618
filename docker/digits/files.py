"""The files that a training keeps: the model, and one checkpoint per epoch. Each is there as a whole or not at all."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import torch

import network

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

CHECKPOINT_NAME = re.compile(r"epoch-(\d+)\.pt")


def save_model(model: nn.Module, path: Path) -> None:
    """Write the state dict, as most PyTorch programs expect it."""
    _save(model.state_dict(), path)


def load_model(path: Path, device: torch.device) -> nn.Module:
    """Return the network with the parameters of a model file."""
    model = network.build()
    model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    return model.to(device)


def save_checkpoint(state: dict[str, Any], directory: Path) -> None:
    """Keep what the epoch after `state["epoch"]` needs."""
    _save(state, directory / f"epoch-{state['epoch']:04d}.pt")


def load_newest_checkpoint(directory: Path) -> dict[str, Any] | None:
    """Return what the newest checkpoint holds; None where there is none yet."""
    names = (CHECKPOINT_NAME.fullmatch(path.name) for path in directory.glob("epoch-*.pt"))
    newest = max((name for name in names if name), key=lambda name: int(name[1]), default=None)
    if newest is None:
        return None
    return torch.load(directory / newest[0], map_location="cpu", weights_only=True)


def _save(value: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.unfinished")
    with unfinished.open("wb") as stream:
        torch.save(value, stream)
        stream.flush()
        os.fsync(stream.fileno())
    unfinished.replace(path)
