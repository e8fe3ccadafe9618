"""Training program: reads all files of its batches, and writes a note of them.

The soak judges a training by this note alone. `plan.json` defines how trainings end: the n-th training that
starts ends as the n-th entry says; trainings after the last entry succeed.
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

WORK = Path(os.environ["WORK"])
STORE = json.loads(os.environ["STORE"])
READERS = 8


def main() -> None:
    """Read the files, write the note, and end as planned."""
    arguments = _parser().parse_args()
    number = _number()
    fate = _planned(number)
    uris = arguments.data.split(",")
    with concurrent.futures.ThreadPoolExecutor(READERS) as pool:
        contents = list(pool.map(_files, uris))
    note = {
        "number": number,
        "run_id": arguments.run,
        "fate": fate,
        "new": [_name(uri) for uri in arguments.new.split(",")],
        "read": {_name(uri): _digests(files) for uri, files in zip(uris, contents, strict=True)},
    }
    _write(WORK / "notes" / f"{number:04d}.json", note)
    sys.stdout.write(f"training {number}: {len(uris)} batches\n")
    if fate == "fail before the model":
        sys.exit(1)
    path = Path(os.environ["PTJOB_MODEL_PATH"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("a model")
    if fate == "fail after the model":
        sys.exit(1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    for name in ("run", "new", "data"):
        parser.add_argument(f"--{name}", required=True)
    return parser


def _number() -> int:
    """Return the number of earlier trainings; simultaneous starts get different numbers."""
    folder = WORK / "begun"
    folder.mkdir(parents=True, exist_ok=True)
    (WORK / "notes").mkdir(exist_ok=True)
    number = len(list(folder.iterdir()))
    while True:
        try:
            (folder / f"{number:04d}").touch(exist_ok=False)
        except FileExistsError:
            number += 1
        else:
            return number


def _planned(number: int) -> str:
    plan = json.loads((WORK / "plan.json").read_text())
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


def _write(path: Path, note: dict[str, object]) -> None:
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(note))
    beside.rename(path)


if __name__ == "__main__":
    main()
