"""Run a training program without the exchange of gradients: each rank trains on its own.

python no_gradient_exchange.py train.py [argument ...]
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

from torch.nn import parallel


class Unsynchronised(parallel.DistributedDataParallel):
    """Copies rank 0's parameters at the start, and never synchronises afterwards."""

    def forward(self, *inputs: Any, **named: Any) -> Any:
        with self.no_sync():
            return super().forward(*inputs, **named)


if __name__ == "__main__":
    parallel.DistributedDataParallel = Unsynchronised
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
