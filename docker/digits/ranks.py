"""Connect the processes of a distributed training, exchange values, and check that all ranks have the same ones.

The processes find each other by `RANK`, `WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT`, which PyTorchJob and torchrun
set. If there is only one process, or the variables are not set, nothing is exchanged.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """This process's rank, the number of ranks, and the device on which this process trains."""

    rank: int
    world_size: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        """Return whether this is rank 0, which prints and writes files."""
        return self.rank == 0

    @property
    def is_alone(self) -> bool:
        """Return whether there is no other process."""
        return self.world_size == 1


@contextmanager
def join(backend: str, *, use_cuda: bool) -> Iterator[Ranks]:
    """Connect to the other processes, and disconnect after the `with` block has succeeded.

    After a failure, the process does not disconnect, because that would wait for the other ranks, which wait for this
    one. The process ends, its connections close, and the other ranks notice at once.
    """
    device = _device(use_cuda=use_cuda)
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Ranks(rank=0, world_size=1, device=device)
        return
    dist.init_process_group(backend)
    yield Ranks(rank=dist.get_rank(), world_size=dist.get_world_size(), device=device)
    dist.destroy_process_group()


def _device(*, use_cuda: bool) -> torch.device:
    if not use_cuda:
        return torch.device("cpu")
    # torchrun starts several processes in one pod and numbers them; a pod without torchrun has one.
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


def share_gradients(network: nn.Module, ranks: Ranks) -> nn.Module:
    """Return the network to train: all ranks start with rank 0's parameters and use the gradients of all ranks."""
    return network if ranks.is_alone else DistributedDataParallel(network)


def from_first(value: Any, ranks: Ranks) -> Any:
    """Return rank 0's value on every rank."""
    if ranks.is_alone:
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def mean(total: float, count: int, ranks: Ranks) -> float:
    """Return the mean over all ranks; `total` is the sum of this rank's `count` values."""
    if ranks.is_alone:
        return total / count
    sums = torch.tensor([total, count], device=ranks.device)
    dist.all_reduce(sums)
    return float(sums[0] / sums[1])


def agree(what: str, value: str, ranks: Ranks, *, otherwise: str) -> None:
    """Check that all ranks have the same value.

    Args:
        what: a plural noun for the value, for the error.
        value: this rank's value.
        ranks: the ranks to compare.
        otherwise: the reason of a difference, for the error.

    Raises:
        SystemExit: the values differ; every rank raises it.
    """
    values = [value] * ranks.world_size
    if not ranks.is_alone:
        dist.all_gather_object(values, value)
    if len(set(values)) > 1:
        seen = ", ".join(f"rank {rank}: {other[:16]}" for rank, other in enumerate(values))
        raise SystemExit(f"{what} differ between ranks ({seen}): {otherwise}")
