"""The files that programs leave: models, checkpoints, and what is said of them; each is whole or not there at all."""

from __future__ import annotations

import io
import os
import re
import secrets
from contextlib import suppress
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
    return read_model(path.read_bytes(), device)


def read_model(content: bytes, device: torch.device) -> nn.Module:
    """Return the network with the parameters that a model file holds."""
    model = network.build()
    model.load_state_dict(torch.load(io.BytesIO(content), map_location="cpu", weights_only=True))
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


def write_over(content: bytes, path: Path) -> None:
    """Write a file in the place of another one: a reader sees this one or that, whoever is killed when."""
    _written_aside(content, path).replace(path)
    _sync_folder(path.parent)


def write_once(content: bytes, path: Path) -> bool:
    """Write a file if there is none of its name; of several who do so at once, one is told that it has.

    Raises:
        SystemExit: this file system has no hard links.
    """
    unfinished = _written_aside(content, path)
    try:
        path.hardlink_to(unfinished)
    except FileExistsError:
        # A network file system that was asked twice, because its first answer was lost, speaks of our own link.
        return path.samefile(unfinished)
    except OSError as error:
        raise SystemExit(f"{path}: {error.strerror}; the champion needs a file system with hard links") from error
    finally:
        unfinished.unlink()
    _sync_folder(path.parent)
    return True


def _save(value: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.unfinished")
    with unfinished.open("wb") as stream:
        torch.save(value, stream)
        stream.flush()
        os.fsync(stream.fileno())
    unfinished.replace(path)


def _written_aside(content: bytes, path: Path) -> Path:
    """Write the content beside the path, under a name that nobody else takes, and return it once it is on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}.unfinished")
    with unfinished.open("xb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    return unfinished


def _sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk; some network file systems cannot, and need not."""
    descriptor = os.open(folder, os.O_RDONLY)
    with suppress(OSError):
        os.fsync(descriptor)
    os.close(descriptor)
