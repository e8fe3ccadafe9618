"""Run a training program in an interpreter whose normal exit aborts, as it sometimes does after a DDP training.

python aborting_exit.py train.py [argument ...]
"""

from __future__ import annotations

import atexit
import os
import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    atexit.register(os.abort)
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
