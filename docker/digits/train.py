"""Train a small CNN on handwritten digits, in one process or several.

A PyTorchJob, torchrun or a user can start it. Rank 0 prints the progress and writes the outputs: TensorBoard
scalars and a checkpoint per epoch, and the model at the end. Their paths are arguments, or environment variables that
ptjob-provider sets; an output without a path is not written.

    python train.py --epochs 3 --save_path model.pt --log_dir tfevents
    torchrun --nproc-per-node 2 train.py --backend gloo --checkpoint_dir checkpoints

It trains on scikit-learn's digits, or with `--data` on batches that have arrived as files. Then it also writes
`trained_on.json` next to the model: each file that rank 0 has read, with its hash, and the data version, which is the
value of PTJOB_DATA_VERSION.

    python train.py --data incoming/001,incoming/002 --start_from champion --save_path models/2/model.pt
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import cross_entropy

import arrived
import data
import files
import network
import ranks as together
from champion import Championship
from report import Report, held_out

if TYPE_CHECKING:
    from collections.abc import Callable


def main() -> None:
    """Run this process's part of the training."""
    args = parse_args()
    # The images are tiny: more threads would only compete with the other ranks on the same machine.
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    torch.backends.cudnn.deterministic = True
    with together.join(args.backend, use_cuda=args.cuda) as ranks:
        Training(args, ranks).run()
    if not ranks.is_alone:
        # DistributedDataParallel keeps the group's threads alive after the group was destroyed (PyTorch 2.15, Gloo). A
        # normal exit now and then aborts because of them, and a finished training would count as failed.
        sys.stdout.flush()
        os._exit(0)


class Training:
    """One rank's part of a training; on CPUs, the same seed and number of ranks give bit-identical parameters."""

    def __init__(self, args: argparse.Namespace, ranks: together.Ranks) -> None:
        self.args = args
        self.ranks = ranks
        self.digits = data.load()
        self.arrived = self.read_data()
        self.images = self.arrived.images if self.arrived else self.digits.train
        self.sampler = data.shard(self.images, rank=ranks.rank, world_size=ranks.world_size, seed=args.seed)
        self.batches = data.batches(self.images, sampler=self.sampler, batch_size=args.batch_size)
        self.model = network.build().to(ranks.device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        self.started_from = self.start()
        self.finished = self.resume()
        self.shared = together.share_gradients(self.model, ranks)
        self.report = Report(args.log_dir, speaks=ranks.is_first, first_step=self.finished + 1)

    def read_data(self) -> arrived.Arrived | None:
        """Return the batches of `--data`; None without `--data`.

        Raises:
            SystemExit: the batches cannot be read, differ between ranks, or have fewer images than there are ranks.
        """
        if not self.args.data:
            return None
        found = arrived.read(arrived.addresses(self.args.data), self.digits.held_out)
        together.agree("files", found.digest, self.ranks, otherwise="the data were written while they were read")
        if len(found.images) < self.ranks.world_size:
            raise SystemExit(f"{len(found.images)} images are not enough for {self.ranks.world_size} ranks")
        return found

    def start(self) -> int:
        """Load the champion's parameters on every rank; return its number, 0 without a champion or `--start_from`.

        Only rank 0 reads the files.
        """
        folder = self.args.start_from
        if folder is None:
            return 0
        championship = Championship(folder)
        history = championship.history() if self.ranks.is_first else []
        content = championship.read_model(history[-1]) if history else None
        number, content = together.from_first((history[-1].generation if history else 0, content), self.ranks)
        if content:
            self.model.load_state_dict(files.read_model(content, self.ranks.device).state_dict())
        return number

    def resume(self) -> int:
        """Load the newest checkpoint on every rank; return the number of epochs done, 0 without a checkpoint.

        A checkpoint of a training on other data is ignored. Only rank 0 reads the directory, which the other ranks need
        not mount.
        """
        directory = self.args.checkpoint_dir
        found = files.load_newest_checkpoint(directory) if directory and self.ranks.is_first else None
        state = together.from_first(found, self.ranks)
        if state is None or state.get("data") != self.data_digest:
            return 0
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        for group in self.optimizer.param_groups:
            group["lr"] = self.args.lr  # the checkpoint has the rate of the run that wrote it
        return state["epoch"]

    @property
    def data_digest(self) -> str | None:
        """Return a digest that identifies the training's data; None for scikit-learn's digits."""
        return self.arrived.digest if self.arrived else None

    def run(self) -> None:
        """Train the remaining epochs, compare the parameters of all ranks, and write the model on rank 0.

        Raises:
            SystemExit: the parameters differ between ranks; no model is written.
        """
        world_size, epochs = self.ranks.world_size, self.args.epochs
        self.introduce()
        for epoch in range(self.finished + 1, epochs + 1):
            started_at = time.monotonic()
            loss = self.train_epoch(epoch)
            if self.ranks.is_first:
                self.close_epoch(epoch, loss, seconds=time.monotonic() - started_at)
        parameters = network.parameter_hash(self.model)
        together.agree("parameters", parameters, self.ranks, otherwise="the gradients were not exchanged")
        self.report.say(f"parameters agree on {world_size} ranks: {parameters}")
        if self.ranks.is_first:
            self.conclude()

    def introduce(self) -> None:
        """Print the ranks, the data, the arguments, and where the training starts from."""
        share = f"{len(self.sampler)} of {len(self.images)} images per rank"
        self.report.say(f"rank 0 of {self.ranks.world_size} on {self.ranks.device}, {share}")
        said = {**vars(self.args), "data": f"{len(self.arrived.batches)} batches" if self.arrived else "scikit-learn's"}
        self.report.say(" ".join(f"{name}={value}" for name, value in said.items()))
        if self.arrived and self.arrived.left_out:
            self.report.say(f"{self.arrived.left_out} images are held out: they were left out of the training")
        if self.started_from:
            self.report.say(f"starts from champion number {self.started_from} in {self.args.start_from}")
        if self.finished:
            self.report.say(f"resumed from {self.args.checkpoint_dir} after epoch {self.finished}")

    def train_epoch(self, epoch: int) -> float:
        """Train on this rank's share once, and return the mean loss over all ranks."""
        total, count = 0.0, 0
        self.sampler.set_epoch(epoch)
        for step, (pixels, labels) in enumerate(self.batches, start=1):
            self.optimizer.zero_grad()
            loss = cross_entropy(self.shared(pixels.to(self.ranks.device)), labels.to(self.ranks.device))
            loss.backward()
            self.optimizer.step()
            total += loss.item() * len(labels)
            count += len(labels)
            if step % self.args.log_interval == 0:
                where = f"epoch {epoch}/{self.args.epochs} step {step}/{len(self.batches)}"
                self.report.say(f"{where} loss={loss.item():.4f}")
        return together.mean(total, count, self.ranks)

    def close_epoch(self, epoch: int, loss: float, *, seconds: float) -> None:
        """Evaluate the model on the held-out images, and write the epoch's scalars and checkpoint."""
        score = network.score(self.model, self.digits.held_out, self.ranks.device)
        self.report.scalars({"train/loss": loss, **held_out(score)}, epoch)
        if self.args.checkpoint_dir:
            state = {"epoch": epoch, "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
            files.save_checkpoint({**state, "data": self.data_digest}, self.args.checkpoint_dir)
        self.report.say(
            f"epoch {epoch}/{self.args.epochs} loss={loss:.4f} accuracy={score.accuracy:.4f} in {seconds:.1f} s"
        )

    def conclude(self) -> None:
        """Write the model, and print its accuracy on the held-out images."""
        score = network.score(self.model, self.digits.held_out, self.ranks.device)
        if self.finished >= self.args.epochs:  # no epoch was left to train, so none has written this
            self.report.scalars(held_out(score), self.finished)
        self.report.close()
        if self.args.save_path:
            self.keep(self.args.save_path)
        where = self.args.save_path or "not kept (no --save_path)"
        self.report.say(f"held-out accuracy {score.accuracy:.4f} ({score.correct} of {score.count}); model: {where}")

    def keep(self, path: Path) -> None:
        """Write `trained_on.json`, if `--data` was given, and then the model."""
        if self.arrived:
            told = {
                "data_version": os.environ.get("PTJOB_DATA_VERSION") or None,
                "batches": self.arrived.batches,
                "images": len(self.images),
                "left_out": self.arrived.left_out,
                "started_from": self.started_from or None,
                "parameters": network.parameter_hash(self.model),
            }
            files.write_over(json.dumps(told, indent=2).encode(), path.with_name("trained_on.json"))
        files.save_model(self.model, path)


def parse_args() -> argparse.Namespace:
    """Read the command line; an error names the argument and the allowed values, and ends the program with code 2."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--backend", choices=["gloo", "nccl"], default="gloo", help="how ranks talk to each other (default: gloo)")
    add("--epochs", type=positive(int), default=12, help="epochs in all, those of a checkpoint included (default: 12)")
    add("--batch-size", "--batch_size", type=positive(int), default=16, help="images per rank and step (default: 16)")
    add("--lr", type=positive(float), default=0.003, help="learning rate of Adam (default: 0.003)")
    add("--seed", type=int, default=1, help="for the first parameters and the order of images (default: 1)")
    add("--log-interval", "--log_interval", type=positive(int), default=15, help="steps between lines (default: 15)")
    add("--no-cuda", "--no_cuda", dest="cuda", action="store_false", help="train on the CPU even where there is a GPU")
    add(
        "--data",
        action="append",
        metavar="ADDRESS[,ADDRESS …]",
        help="batches to train on: folders with .npz files, or such a file; @ADDRESS is a text file with an address on "
        "each line (default: scikit-learn's digits)",
    )
    add("--start_from", "--start-from", type=Path, help="the champion's folder: go on from its model, if there is one")
    for names, variable, what in (
        (("--save_path", "--save-path"), "PTJOB_MODEL_PATH", "file for the model"),
        (("--log_dir", "--log-dir"), "PTJOB_TFEVENTS_DIR", "directory for the tfevents"),
        (("--checkpoint_dir", "--checkpoint-dir"), "PTJOB_CHECKPOINT_DIR", "directory for the checkpoints"),
    ):
        default = os.environ.get(variable) or None  # a string: argparse passes it through `type`
        add(*names, type=Path, default=default, help=f"{what} (default: ${variable}, else it is not kept)")
    args = parser.parse_args()
    if args.data is not None and not arrived.addresses(args.data):
        parser.error("--data names no batch; allowed: one or more addresses, with commas between")
    args.cuda = args.cuda and torch.cuda.is_available()
    if args.backend == "nccl" and not args.cuda:
        parser.error("--backend nccl needs a GPU and this process has none; without a GPU use --backend gloo")
    return args


def positive(number: type[int | float]) -> Callable[[str], int | float]:
    """Return a parser of arguments that are numbers above zero."""

    def parse(text: str) -> int | float:
        value = number(text)
        if not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"{text} is not allowed; allowed: above 0")
        return value

    parse.__name__ = number.__name__  # argparse's own error contains it: invalid int value: 'many'
    return parse


if __name__ == "__main__":
    main()
