"""Deliver a batch of digits as a producer of data would: first its files, then the marker that it is complete.

The images are the 1,437 digits of scikit-learn that are not held out. A batch is a slice of them: `--count` images,
from number `--first` on. `--spoil` exchanges the labels within the slice.

    python deliver.py --to incoming/2026-11-22-001 --first 0 --count 180
"""

from __future__ import annotations

import argparse
import io

import fsspec
import numpy as np

import data

MARKER = "_SUCCESS"
SPOIL_SEED = 0


def main() -> None:
    """Deliver the batch that the command line describes."""
    args = parse_args()
    images, labels = (tensor.numpy() for tensor in data.load().train.tensors)
    chosen = slice(args.first, args.first + args.count)
    pixels, labels = (images[chosen, 0] * 16).astype(np.uint8), labels[chosen]
    if args.spoil:
        labels = np.random.default_rng(SPOIL_SEED).permutation(labels)
    store, folder = fsspec.url_to_fs(args.to)
    store.makedirs(folder, exist_ok=True)
    if store.exists(f"{folder}/{MARKER}"):
        store.rm(f"{folder}/{MARKER}")  # delivered again: incomplete until all files are written
    for number, part in enumerate(np.array_split(np.arange(len(labels)), args.files)):
        content = io.BytesIO()
        np.savez_compressed(content, images=pixels[part], labels=labels[part])
        store.pipe_file(f"{folder}/part-{number:03d}.npz", content.getvalue())
    store.pipe_file(f"{folder}/{MARKER}", b"")
    print(f"{args.to}: {len(labels)} images{', spoilt,' if args.spoil else ''} in {args.files} files")


def parse_args() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--to", required=True, help="the batch's folder: a path, or a URL that fsspec can write to")
    add("--first", type=int, default=0, help="number of the slice's first image (default: 0)")
    add("--count", type=int, default=180, help="images in the slice (default: 180)")
    add("--files", type=int, default=2, help="number of files (default: 2)")
    add("--spoil", action="store_true", help="write wrong labels")
    return parser.parse_args()


if __name__ == "__main__":
    main()
