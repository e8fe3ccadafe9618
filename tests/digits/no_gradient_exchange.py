"""Runs a training program with the exchange of gradients taken out of it: each rank learns for itself.

python no_gradient_exchange.py train.py [argument ...]
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

from torch.nn import parallel


class Unsynchronised(parallel.DistributedDataParallel):
    """Starts with rank 0's parameters like any, and then never asks the other ranks again."""

    def forward(self, *inputs: Any, **named: Any) -> Any:
        with self.no_sync():
            return super().forward(*inputs, **named)


if __name__ == "__main__":
    parallel.DistributedDataParallel = Unsynchronised
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
