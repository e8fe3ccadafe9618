"""Training program: fits a line to the numbers in all files of its batches, and writes a note of the files it read.

The soak judges a training by this note alone. `plan.json` defines how trainings end: the n-th training of a series that
starts ends as the n-th entry of the series says; trainings after the last entry succeed.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import hashlib
import json
import os
import sys
from pathlib import Path

import fsspec
import torch

WORK = Path(os.environ["WORK"])
STORE = json.loads(os.environ["STORE"])
READERS = 8


def main() -> None:
    """Read the files, fit the line, write the note, and end as planned."""
    arguments = _parser().parse_args()
    number = _number(arguments.series)
    fate = _planned(arguments.series, number)
    uris = arguments.data.split(",")
    with concurrent.futures.ThreadPoolExecutor(READERS) as pool:
        contents = list(pool.map(_files, uris))
    numbers = [float(line) for files in contents for data in files.values() for line in data.split()]
    loss = _fit(torch.tensor(numbers))
    note = {
        "number": number,
        "run_id": arguments.run,
        "fate": fate,
        "new": [_name(uri) for uri in arguments.new.split(",")],
        "read": {_name(uri): _digests(files) for uri, files in zip(uris, contents, strict=True)},
    }
    _write(WORK / arguments.series / "notes" / f"{number:04d}.json", note)
    sys.stdout.write(f"training {number}: {len(uris)} batches, {len(numbers)} numbers, loss {loss:.4f}\n")
    if fate == "fail before the model":
        sys.exit(1)
    path = Path(os.environ["PTJOB_MODEL_PATH"])
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"mean": float(torch.tensor(numbers).mean())}, path)
    if fate == "fail after the model":
        sys.exit(1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    for name in ("series", "run", "new", "data"):
        parser.add_argument(f"--{name}", required=True)
    return parser


def _number(series: str) -> int:
    """Return the number of earlier trainings of this series; simultaneous starts get different numbers."""
    folder = WORK / series / "begun"
    folder.mkdir(parents=True, exist_ok=True)
    (WORK / series / "notes").mkdir(exist_ok=True)
    number = len(list(folder.iterdir()))
    while True:
        try:
            (folder / f"{number:04d}").touch(exist_ok=False)
        except FileExistsError:
            number += 1
        else:
            return number


def _planned(series: str, number: int) -> str:
    plan = json.loads((WORK / "plan.json").read_text())[series]
    return str(plan[number]) if number < len(plan) else "success"


def _files(uri: str) -> dict[str, bytes]:
    """Return the files of a batch: relative path → content."""
    store, root = fsspec.core.url_to_fs(uri, **(STORE if uri.startswith("s3://") else {}))
    found = [path for path in store.find(root) if not path.endswith("_SUCCESS")]
    return {path.removeprefix(root).lstrip("/"): store.cat_file(path) for path in found}


def _digests(files: dict[str, bytes]) -> dict[str, str]:
    return {path: hashlib.sha256(data).hexdigest() for path, data in files.items()}


def _name(uri: str) -> str:
    return uri.rstrip("/").rpartition("/")[2]


def _fit(numbers: torch.Tensor) -> float:
    """Fit a line to the numbers, without `torch.optim`, which takes longer to import than the whole program."""
    places = torch.linspace(0, 1, len(numbers))
    line = torch.zeros(2, requires_grad=True)
    for _ in range(20):
        loss = ((line[0] * places + line[1] - numbers) ** 2).mean()
        (gradient,) = torch.autograd.grad(loss, line)
        line = (line - 0.1 * gradient).detach().requires_grad_()
    return float(loss.detach())


def _write(path: Path, note: dict[str, object]) -> None:
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(note))
    beside.rename(path)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
