"""Build and evaluate the network, a small CNN for images of 8x8 pixels."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import nn
from torch.nn.functional import cross_entropy

if TYPE_CHECKING:
    from torch.utils.data import TensorDataset


class Score(NamedTuple):
    """Score of a network on a set of images."""

    accuracy: float
    loss: float
    correct: int
    count: int


def build() -> nn.Sequential:
    """Return the network with new parameters from torch's random generator.

    It is a plain `Sequential`, so that another program can load a model file after repeating these lines. It has no
    batch normalisation, because the running statistics would differ between ranks, and all ranks must end with the same
    state.
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
    """Return the network's score on all the images."""
    pixels, labels = (tensor.to(device) for tensor in images.tensors)
    outputs = network(pixels)
    correct = int((outputs.argmax(dim=1) == labels).sum())
    loss = float(cross_entropy(outputs, labels))
    return Score(accuracy=correct / len(labels), loss=loss, correct=correct, count=len(labels))


def parameter_hash(network: nn.Module) -> str:
    """Return the SHA-256 over the names and bytes of all tensors that a model file contains."""
    digest = hashlib.sha256()
    for name, tensor in network.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.cpu().numpy().tobytes())
    return digest.hexdigest()
