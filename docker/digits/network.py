"""The network: a small CNN for images of 8x8 pixels, and how good it is."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import nn
from torch.nn.functional import cross_entropy

if TYPE_CHECKING:
    from torch.utils.data import TensorDataset


class Score(NamedTuple):
    """How a network does on a set of images."""

    accuracy: float
    loss: float
    correct: int
    count: int


def build() -> nn.Sequential:
    """Return the network with fresh parameters, drawn from torch's seeded generator.

    A plain `Sequential`, so that whoever writes these lines again can load a model file. It has no batch normalisation,
    whose running statistics would differ between ranks: all ranks shall end with the same state.
    """
    return nn.Sequential(
        nn.Conv2d(1, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


@torch.no_grad()
def score(network: nn.Module, images: TensorDataset, device: torch.device) -> Score:
    """Return how the network does on all the images."""
    pixels, labels = (tensor.to(device) for tensor in images.tensors)
    outputs = network(pixels)
    correct = int((outputs.argmax(dim=1) == labels).sum())
    loss = float(cross_entropy(outputs, labels))
    return Score(accuracy=correct / len(labels), loss=loss, correct=correct, count=len(labels))


def parameter_hash(network: nn.Module) -> str:
    """Return the SHA-256 over the names and bytes of everything that a model file holds."""
    digest = hashlib.sha256()
    for name, tensor in network.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.cpu().numpy().tobytes())
    return digest.hexdigest()
