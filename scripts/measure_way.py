"""Measure how many files and functions render a job's manifest from its fields: `python scripts/measure_way.py [-v]`.

The figures are for each kind; `-v` lists the functions in the order in which they are entered.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from ptjob_provider.core import kinds
from ptjob_provider.core.identity import Owner
from ptjob_provider.core.spec import TrainingJob

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_PRODUCT = Path(__file__).parents[1] / "ptjob_provider"
_PLAIN: dict[str, Any] = {
    "name": "digits",
    "image": "digits:1",
    "command": ["torchrun", "main.py"],
    "workers": 2,
    "gpus": 1,
    "env": {"LR": "0.1"},
    "volumes": ["data:/data"],
}
_JOBS = {
    "plain": _PLAIN,
    "with outputs and code": {**_PLAIN, "model": "/data/m.pt", "code": "https://git.example/a.git"},
}
_OWNER = Owner(instance="measure", ids={"task": "way"}, labels={})


def entered(call: Callable[[], object]) -> dict[str, list[str]]:
    """Return the functions of the product that a call enters, by file."""
    by_file: dict[str, list[str]] = {}

    def enter(frame: FrameType, event: str, _arg: object) -> None:
        code = frame.f_code
        path = Path(code.co_filename)
        if event == "call" and not code.co_name.startswith("<") and path.is_relative_to(_PRODUCT):
            functions = by_file.setdefault(str(path.relative_to(_PRODUCT)), [])
            if code.co_qualname not in functions:
                functions.append(code.co_qualname)

    sys.setprofile(enter)
    try:
        call()
    finally:
        sys.setprofile(None)
    return by_file


def _render(kind: str, fields: dict[str, Any]) -> dict[str, list[str]]:
    runtime = {"runtime": "with-code"} if kind == "TrainJob" else {}
    job, render = TrainingJob.parse(**fields, **runtime, kind=kind), kinds.named(kind).render
    return entered(lambda: render(job, owner=_OWNER, attempt=1))


def main() -> None:
    """Print the figures of each kind and job."""
    for kind in kinds.KINDS:
        for name, fields in _JOBS.items():
            files = _render(kind, fields)
            print(f"{kind}, {name}: {len(files)} files, {sum(map(len, files.values()))} functions")
            if "-v" in sys.argv:
                for file, functions in files.items():
                    print(f"    {file}: {', '.join(functions)}")


if __name__ == "__main__":
    main()
