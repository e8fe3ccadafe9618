"""Read and write the programs' files, such as models and checkpoints; a file is either complete or does not exist."""

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
    """Write the model's state dict, which is what most PyTorch programs expect in a file."""
    _save(model.state_dict(), path)


def load_model(path: Path, device: torch.device) -> nn.Module:
    """Return the network with the parameters of a model file."""
    return read_model(path.read_bytes(), device)


def read_model(content: bytes, device: torch.device) -> nn.Module:
    """Return the network with the parameters in the content of a model file."""
    model = network.build()
    model.load_state_dict(torch.load(io.BytesIO(content), map_location="cpu", weights_only=True))
    return model.to(device)


def save_checkpoint(state: dict[str, Any], directory: Path) -> None:
    """Write a checkpoint: the state that the epoch after `state["epoch"]` needs."""
    _save(state, directory / f"epoch-{state['epoch']:04d}.pt")


def load_newest_checkpoint(directory: Path) -> dict[str, Any] | None:
    """Return the state in the newest checkpoint; None if there is no checkpoint yet."""
    names = (CHECKPOINT_NAME.fullmatch(path.name) for path in directory.glob("epoch-*.pt"))
    newest = max((name for name in names if name), key=lambda name: int(name[1]), default=None)
    if newest is None:
        return None
    return torch.load(directory / newest[0], map_location="cpu", weights_only=True)


def write_over(content: bytes, path: Path) -> None:
    """Write or replace a file atomically: readers see the old or the new content, even if this process is killed."""
    _written_aside(content, path).replace(path)
    _sync_folder(path.parent)


def write_once(content: bytes, path: Path) -> bool:
    """Create a file unless it exists, and return whether this call created it.

    If several processes create it at the same time, only one of them succeeds.

    Raises:
        SystemExit: the file system does not support hard links.
    """
    unfinished = _written_aside(content, path)
    try:
        path.hardlink_to(unfinished)
    except FileExistsError:
        # A network file system repeats a request whose response was lost; the existing file may be our own link.
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
    """Write the content to disk in the same folder, under a unique temporary name, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}.unfinished")
    with unfinished.open("xb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    return unfinished


def _sync_folder(folder: Path) -> None:
    """Write a folder's entries to disk; some network file systems do not support this, and do not need it."""
    descriptor = os.open(folder, os.O_RDONLY)
    with suppress(OSError):
        os.fsync(descriptor)
    os.close(descriptor)
