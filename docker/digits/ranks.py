"""The processes that train together: how they meet, what they exchange, and whether they have learnt the same.

They meet through `RANK`, `WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT`, which PyTorchJob sets and torchrun too. In a
world of one process, or where nothing is set, there is nobody to meet and nothing is exchanged.
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
    """This process's place among those that train together."""

    rank: int
    world_size: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, the one that speaks and writes."""
        return self.rank == 0

    @property
    def is_alone(self) -> bool:
        """Whether there is no other process."""
        return self.world_size == 1


@contextmanager
def join(backend: str, *, use_cuda: bool) -> Iterator[Ranks]:
    """Meet the other processes, and part from them when all went well.

    After a failure we do not take leave: that would wait for the others, who wait for us. The process ends, its
    connections close, and the others see it at once.
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
    """Return the network to train: all ranks start with rank 0's parameters and step with everybody's gradients."""
    return network if ranks.is_alone else DistributedDataParallel(network)


def from_first(value: Any, ranks: Ranks) -> Any:
    """Return rank 0's value on every rank."""
    if ranks.is_alone:
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def mean(total: float, count: int, ranks: Ranks) -> float:
    """Return the mean over all ranks of what each of them has summed up."""
    if ranks.is_alone:
        return total / count
    sums = torch.tensor([total, count], device=ranks.device)
    dist.all_reduce(sums)
    return float(sums[0] / sums[1])


def agree(what: str, value: str, ranks: Ranks, *, otherwise: str) -> None:
    """Return if all ranks have the same value.

    Args:
        what: the value is.
        value: of this rank.
        ranks: who is asked.
        otherwise: what it means if they have not.

    Raises:
        SystemExit: they have not; every rank raises it.
    """
    values = [value] * ranks.world_size
    if not ranks.is_alone:
        dist.all_gather_object(values, value)
    if len(set(values)) > 1:
        seen = ", ".join(f"rank {rank}: {other[:16]}" for rank, other in enumerate(values))
        raise SystemExit(f"{what} differ between ranks ({seen}): {otherwise}")
