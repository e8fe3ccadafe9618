"""Load scikit-learn's 1,797 handwritten digits of 8x8 pixels, and divide them between the ranks of a training.

The images come with scikit-learn, so nothing is downloaded. The same 360 images are always held out, independent of the
seed of a training, so that training and evaluation use the same ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

HELD_OUT_SHARE = 0.2
SPLIT_SEED = 0


@dataclass(frozen=True, kw_only=True)
class Digits:
    """Images of shape (n, 1, 8, 8) with values from 0 to 1, and their labels."""

    train: TensorDataset
    held_out: TensorDataset


def load() -> Digits:
    """Return the digits as training and held-out images; both have the same proportion of each digit."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16.0
    labels = torch.tensor(digits.target, dtype=torch.int64)
    train, held_out = train_test_split(
        range(len(labels)), test_size=HELD_OUT_SHARE, random_state=SPLIT_SEED, stratify=labels.numpy()
    )
    return Digits(
        train=TensorDataset(images[train], labels[train]), held_out=TensorDataset(images[held_out], labels[held_out])
    )


def shard(dataset: TensorDataset, *, rank: int, world_size: int, seed: int) -> DistributedSampler:
    """Return the sampler of one rank's share; the shares of all ranks are disjoint and of equal size.

    Images that do not divide evenly are left out of the epoch, because padding would give some images to two ranks.
    Each epoch is shuffled again, so each leaves out other images.
    """
    return DistributedSampler(dataset, num_replicas=world_size, rank=rank, shuffle=True, seed=seed, drop_last=True)


def batches(dataset: TensorDataset, *, sampler: DistributedSampler, batch_size: int) -> DataLoader:
    """Return a loader of the batches in one rank's share."""
    return DataLoader(dataset, batch_size=batch_size, sampler=sampler)
