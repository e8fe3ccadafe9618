"""Batches of digits that have arrived as files: where they are, what is in them, and what was really read.

A batch is a folder with `.npz` files, or one such file: `images` of shape (n, 8, 8) with values from 0 to 16, and
`labels` (n) from 0 to 9. Its address is a path, or whatever fsspec reads (`s3://bucket/incoming/2026-11-22-001`).
Images that are held out are not trained on, whoever delivers them: they are left out, and counted.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import fsspec
import numpy as np
import torch
from torch.utils.data import TensorDataset

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

SUFFIX = ".npz"
SIZE = (8, 8)
BRIGHTEST = 16
CLASSES = 10


@dataclass(frozen=True, kw_only=True)
class File:
    """A file as it was read; `path` is what follows the batch's address."""

    path: str
    images: np.ndarray
    labels: np.ndarray
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Arrived:
    """All batches of a training, as they were read.

    Attributes:
        images: what is trained on.
        batches: each batch's address, and its files with what was read of them; JSON.
        left_out: how many images were held out, and so are not in `images`.
    """

    images: TensorDataset
    batches: Sequence[dict[str, Any]]
    left_out: int

    @property
    def digest(self) -> str:
        """The SHA-256 over addresses and contents: the same wherever and whenever the same was read."""
        return hashlib.sha256(json.dumps(self.batches, sort_keys=True).encode()).hexdigest()


def addresses(given: Sequence[str]) -> list[str]:
    """Return the addresses of the batches, each once, in the order in which they were first given.

    Args:
        given: addresses, several in one text with commas between; `@address` is a manifest, for more batches than a
            command line takes: a text file with an address, or a JSON object that has it as `uri`, on each line.
    """
    named = [address for text in given for address in text.split(",")]
    found = [line for address in named for line in (_manifest(address[1:]) if address[:1] == "@" else [address])]
    return list(dict.fromkeys(address.strip() for address in found if address.strip()))


def read(places: Sequence[str], held_out: TensorDataset) -> Arrived:
    """Read all batches.

    Raises:
        SystemExit: one is not there, has no data, or a file of it is none of these; which one and why is said.
    """
    read_batches = [(address, list(_files(address))) for address in places]
    files = [file for _, files in read_batches for file in files]
    pixels = np.concatenate([file.images for file in files]) / BRIGHTEST
    images = torch.tensor(pixels, dtype=torch.float32).unsqueeze(1)
    labels = torch.tensor(np.concatenate([file.labels for file in files]), dtype=torch.int64)
    known = {image.numpy().tobytes() for image in held_out.tensors[0]}
    fresh = torch.tensor([image.numpy().tobytes() not in known for image in images], dtype=torch.bool)
    return Arrived(
        images=TensorDataset(images[fresh], labels[fresh]),
        batches=[{"uri": address, "files": [_told(file) for file in files]} for address, files in read_batches],
        left_out=int((~fresh).sum()),
    )


def _manifest(address: str) -> list[str]:
    try:
        with fsspec.open(address, "r", encoding="utf-8") as stream:
            lines = stream.read().splitlines()
    except FileNotFoundError:
        _refuse(address, "there is no such manifest")
    return [json.loads(line)["uri"] if line.startswith("{") else line for line in lines]


def _files(address: str) -> Iterator[File]:
    """Yield a batch's files, by name."""
    try:
        store, root = fsspec.url_to_fs(address)
    except (ValueError, ImportError) as error:  # a protocol that fsspec does not know, or whose package is not here
        _refuse(address, str(error))
    names = [root] if store.isfile(root) else sorted(_visible(store.find(root), root))
    if not names:
        why = f"no file in it ends with {SUFFIX}" if store.exists(root) else "there is nothing at this address"
        _refuse(address, f"{why}; bring it back, or leave it out of --data")
    for name in names:
        path = name[len(root) :].strip("/") or name.rpartition("/")[2]
        yield _file(store.cat_file(name), path, f"{address.rstrip('/')}/{path}" if name != root else address)


def _visible(names: Iterable[str], root: str) -> Iterator[str]:
    for name in names:
        parts = name[len(root) :].strip("/").split("/")
        if name.endswith(SUFFIX) and not any(part.startswith((".", "_")) for part in parts):
            yield name


def _file(content: bytes, path: str, address: str) -> File:
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            images, labels = np.asarray(arrays["images"]), np.asarray(arrays["labels"])
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
        _refuse(address, f"it is no {SUFFIX} file with `images` and `labels`: {error}")
    _check(images, labels, address)
    digest = hashlib.sha256(content).hexdigest()
    return File(path=path, images=images, labels=labels, bytes=len(content), sha256=digest)


def _check(images: np.ndarray, labels: np.ndarray, address: str) -> None:
    if images.shape != (*labels.shape, *SIZE) or labels.ndim != 1:
        _refuse(address, f"images have the shape {images.shape}, labels {labels.shape}; allowed are (n, 8, 8) and (n,)")
    if not (np.issubdtype(images.dtype, np.number) and np.issubdtype(labels.dtype, np.integer)):
        _refuse(address, f"images are {images.dtype}, labels {labels.dtype}; allowed are numbers and whole numbers")
    if not ((images >= 0) & (images <= BRIGHTEST)).all():
        _refuse(address, f"a pixel is not between 0 and {BRIGHTEST}")
    for index in np.flatnonzero((labels < 0) | (labels >= CLASSES)):
        _refuse(address, f"image {index} has the label {labels[index]}; allowed are 0 to {CLASSES - 1}")


def _told(file: File) -> dict[str, Any]:
    return {"path": file.path, "images": len(file.labels), "bytes": file.bytes, "sha256": file.sha256}


def _refuse(address: str, why: str) -> NoReturn:
    raise SystemExit(f"{address}: {why}")
