"""Run a program that stops before its first link until a second process, started in the same way, has reached its own.

python met.py FOLDER PROGRAM [argument ...]
"""

from __future__ import annotations

import os
import runpy
import sys
import time
from pathlib import Path
from typing import Any

OTHERS = 2


def meet(folder: Path) -> None:
    """Make this process wait for the other one before its first link."""
    mine = folder / str(os.getpid())

    def hear(event: str, _told: tuple[Any, ...]) -> None:
        if event == "os.link" and not mine.exists():
            mine.touch()
            while len(list(folder.iterdir())) < OTHERS:
                time.sleep(0.01)

    sys.addaudithook(hear)


if __name__ == "__main__":
    meet(Path(sys.argv[1]))
    sys.argv = sys.argv[2:]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
