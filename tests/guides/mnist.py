"""A replacement for the `mnist.py` of Arena's guides: same options and output, on the small digits of docker/digits.

It is part of a git repository with the files of docker/digits. As in the guides, every rank prints, `--backend nccl`
needs a GPU, and `--data` is a directory of images: here the batches from docker/digits/deliver.py.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import cross_entropy

import arrived
import data
import network
import ranks as together
from report import Report

if TYPE_CHECKING:
    from torch.utils.data import TensorDataset


def main() -> None:
    """Train according to the command line."""
    print(f"WORLD_SIZE: {os.environ['WORLD_SIZE']}, CURRENT_RANK: {os.environ['RANK']}")
    args = parse_args()
    print(f"args: {args}", flush=True)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    with together.join(args.backend, use_cuda=torch.cuda.is_available()) as ranks:
        print(f"Using distributed PyTorch with {args.backend} backend")
        train(args, ranks)
    if ranks.is_first:
        stay()


def stay() -> None:
    """Let the other ranks end first: a job ends with rank 0, and ranks that still run are stopped and lose log lines.

    A test that waits for their end names another file in `stays-until`, and creates that file when they have ended.
    """
    path = Path(__file__).with_name("stays-until")
    if not path.exists():
        time.sleep(3)
        return
    while not Path(path.read_text()).exists():
        time.sleep(0.1)


def train(args: argparse.Namespace, ranks: together.Ranks) -> None:
    """Train all epochs with the other ranks, and print the accuracy.

    Raises:
        SystemExit: The ranks have different parameters.
    """
    held_out = data.load().held_out
    images = images_of(args)
    sampler = data.shard(images, rank=ranks.rank, world_size=ranks.world_size, seed=args.seed)
    batches = data.batches(images, sampler=sampler, batch_size=args.batch_size)
    model = network.build().to(ranks.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    shared = together.share_gradients(model, ranks)
    report = Report(args.dir, speaks=ranks.is_first)
    for epoch in range(1, args.epochs + 1):
        sampler.set_epoch(epoch)
        for step, (pixels, labels) in enumerate(batches):
            optimizer.zero_grad()
            loss = cross_entropy(shared(pixels.to(ranks.device)), labels.to(ranks.device))
            loss.backward()
            optimizer.step()
            if step % args.log_interval == 0:
                share = f"{step * args.batch_size}/{len(sampler)} ({100 * step // len(batches)}%)"
                print(f"Train Epoch: {epoch} [{share}]\tloss={loss.item():.4f}", flush=True)
        report.scalars({"loss": loss.item()}, epoch)
    report.close()
    together.agree("parameters", network.parameter_hash(model), ranks, otherwise="gradients were not exchanged")
    print(f"\naccuracy={network.score(model, held_out, ranks.device).accuracy:.4f}", flush=True)
    together.mean(0.0, 1, ranks)  # all ranks have printed it before rank 0 ends and the job with it


def images_of(args: argparse.Namespace) -> TensorDataset:
    """Return the images in the directory `--data`, or scikit-learn's digits without it."""
    known = data.load()
    return arrived.read([args.data], known.held_out).images if args.data else known.train


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", choices=["gloo", "nccl"], default="gloo")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--log-interval", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.003)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data")
    parser.add_argument("--dir")
    args = parser.parse_args()
    if args.backend == "nccl" and not torch.cuda.is_available():
        parser.error("--backend nccl needs a GPU and this process has none")
    return args


if __name__ == "__main__":
    main()
