"""Read batches of digits that have arrived as files.

A batch is a folder with `.npz` files, or a single such file: `images` of shape (n, 8, 8) with values from 0 to 16, and
`labels` of shape (n,) with values from 0 to 9. Its address is a path, or a URL that fsspec can read, such as
`s3://bucket/incoming/2026-11-22-001`. Held-out images that a batch contains are left out of the training, and counted.
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
    """Content of one file of a batch; `path` is relative to the batch, or the file's name if the batch is that file."""

    path: str
    images: np.ndarray
    labels: np.ndarray
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Arrived:
    """All batches of a training, as they were read.

    Attributes:
        images: the images to train on, with their labels.
        batches: the address of each batch, and the path, size, hash and number of images of each of its files; JSON.
        left_out: number of held-out images in the batches; `images` does not contain them.
    """

    images: TensorDataset
    batches: Sequence[dict[str, Any]]
    left_out: int

    @property
    def digest(self) -> str:
        """Return the SHA-256 over all addresses and contents; it is equal in all processes that read the same data."""
        return hashlib.sha256(json.dumps(self.batches, sort_keys=True).encode()).hexdigest()


def addresses(given: Sequence[str]) -> list[str]:
    """Return the addresses of the batches without duplicates, in their original order.

    Args:
        given: texts of one or more addresses, separated by commas. `@address` is a manifest, for more batches than fit
            on a command line: a text file in which each line is an address, or a JSON object with an address as `uri`.
    """
    named = [address for text in given for address in text.split(",")]
    found = [line for address in named for line in (_manifest(address[1:]) if address[:1] == "@" else [address])]
    return list(dict.fromkeys(address.strip() for address in found if address.strip()))


def read(places: Sequence[str], held_out: TensorDataset) -> Arrived:
    """Read all batches.

    Raises:
        SystemExit: a batch does not exist, has no data, or has an invalid file; the message names it and the reason.
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
    """Yield the files of a batch, sorted by name."""
    try:
        store, root = fsspec.url_to_fs(address)
    except (ValueError, ImportError) as error:  # an unknown protocol, or one whose package is not installed
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
