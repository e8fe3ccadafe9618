"""Run a program of docker/digits repeatedly, killed before each of its steps on a folder in turn, then without a kill.

    python struck.py FOLDER PROGRAM [argument ...]

A step is anything that changes the folder: opening a file for writing, a rename, a link, a removal, a new directory.
Each round starts with the original folder, and runs the program a second time after the killed one. It prints one line
of JSON with the state of the folder after either run. In the last round the first run was not killed.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

STEPS = {"os.rename", "os.link", "os.remove", "os.mkdir"}


def main(folder: Path, program: Path, arguments: list[str]) -> None:
    """Kill the program before its first step, then before its second, and so on."""
    before = folder.with_name(f"{folder.name}-before")
    shutil.copytree(folder, before)
    sys.path[:0] = [str(program.parent)]
    sys.argv = [str(program), *arguments]
    _load_what_takes_long()
    was_killed, step = True, 0
    while was_killed:
        step += 1
        shutil.rmtree(folder)
        shutil.copytree(before, folder)
        was_killed = _forked(program, kill_before=step, folder=folder) == -signal.SIGKILL
        left = _seen(folder)
        code = _forked(program, kill_before=0, folder=folder)
        told = {"step": step, "killed": was_killed, "left": left, "code": code, "then": _seen(folder)}
        say(f"round {json.dumps(told)}")


def say(line: str) -> None:
    """Print a line and flush it: the process may be killed next."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _load_what_takes_long() -> None:
    for name in ("sklearn.datasets", "torch.utils.tensorboard"):
        importlib.import_module(name)


def _forked(program: Path, *, kill_before: int, folder: Path) -> int:
    """Run the program in a forked process and return its exit code, negative for a signal."""
    pid = os.fork()
    if pid == 0:
        _strike(kill_before, folder)
        try:
            runpy.run_path(str(program), run_name="__main__")
        except SystemExit as error:
            say(str(error))
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _strike(step: int, folder: Path) -> None:
    """Make this process kill itself before a step."""
    steps = 0

    def hear(event: str, told: tuple[Any, ...]) -> None:
        nonlocal steps
        if _is_step(event, told, folder):
            steps += 1
            if steps == step:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hear)


def _is_step(event: str, told: tuple[Any, ...], folder: Path) -> bool:
    if event not in STEPS and not (event == "open" and told[2] & (os.O_WRONLY | os.O_RDWR)):
        return False
    return str(told[0]).startswith(f"{folder}{os.sep}")


def _seen(folder: Path) -> dict[str, Any]:
    """Return the state as a reader sees it: the decisions, the content of `current.json` and each model's size."""
    current = folder / "current.json"
    history = [json.loads(path.read_text()) for path in sorted(folder.glob("history/[0-9]*.json"))]
    models = {str(path.relative_to(folder)): path.stat().st_size for path in folder.glob("models/*/model.pt")}
    return {
        "history": history,
        "current": json.loads(current.read_text()) if current.exists() else None,
        "models": models,
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
