"""Checkpoints as a program leaves them that is killed while it writes one, and the answer of the look at them."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.in_pod import find_checkpoint

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

LONG_AGO = 1_000_000_000.0
"""Time of modification of the older checkpoint, in seconds since 1970."""


def look(top: Path, *, root: Path | None = None, since: float = 0.0, seconds: float = 60.0) -> dict[str, Any]:
    """Return the report about a folder."""
    request = {"path": str(top), "root": str(root or top), "since": since, "seconds": seconds}
    return find_checkpoint.find(request)


def found(top: Path, **asked: Any) -> str | None:
    """Return the path of the checkpoint that is found."""
    path: str | None = look(top, **asked)["path"]
    return path


def files_of(checkpoint: Path) -> list[Path]:
    """Return a checkpoint's files in the order in which they were written."""
    files = [checkpoint] if checkpoint.is_file() else [path for path in checkpoint.rglob("*") if path.is_file()]
    return sorted(files, key=lambda path: (path.stat().st_mtime_ns, path.name))


def cut(checkpoint: Path, random: Random) -> str:
    """Cut one of the files at a random place; every second time, those that were written after it are missing.

    A file that was removed entirely is not cut here, because a checkpoint without an optional file is another one.
    """
    files = files_of(checkpoint)
    victim = random.choice([path for path in files if path.stat().st_size])
    size = random.randrange(victim.stat().st_size)
    os.truncate(victim, size)
    is_killed = random.random() < 0.5
    if is_killed:
        for later in files[files.index(victim) + 1 :]:
            later.unlink()
    return f"{victim.name} has {size} bytes{', and nothing follows' if is_killed else ''}"


def copied(checkpoint: Path, place: Path, *, is_old: bool = False) -> Path:
    """Copy a checkpoint with the times of its files; an older one has them all at one time."""
    if checkpoint.is_file():
        shutil.copy2(checkpoint, place)
    else:
        shutil.copytree(checkpoint, place)
    if is_old:
        for path in [place, *place.rglob("*")]:
            os.utime(path, (LONG_AGO, LONG_AGO))
    return place
