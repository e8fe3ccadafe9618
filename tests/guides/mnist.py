"""The `mnist.py` of Arena's guides, for tests: its options and what it prints, on the small digits of docker/digits.

It lies in a git repository beside the files of docker/digits. As in the guides every rank speaks, `--backend nccl`
needs a GPU, and `--data` is a folder of images: here the batches that docker/digits/deliver.py makes.
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
    """Train as the command line says."""
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
    """Let the others end first: a job is over when rank 0 is, and whoever still runs is stopped, log and all.

    A test that sees them end brings a file that names another one, which it makes then.
    """
    told = Path(__file__).with_name("stays-until")
    if not told.exists():
        time.sleep(3)
        return
    while not Path(told.read_text()).exists():
        time.sleep(0.1)


def train(args: argparse.Namespace, ranks: together.Ranks) -> None:
    """Train all epochs together with the others, and say how good the network is.

    Raises:
        SystemExit: the ranks have not learnt the same.
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
    together.mean(0.0, 1, ranks)  # all have said it before rank 0 ends, and with it the job


def images_of(args: argparse.Namespace) -> TensorDataset:
    """Return what is in the folder that was named, else scikit-learn's digits."""
    known = data.load()
    return arrived.read([args.data], known.held_out).images if args.data else known.train


def parse_args() -> argparse.Namespace:
    """Read the command line."""
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
