"""Count steps as a training does, with a loss that falls; rank 2 ends at step 400 as the argument says."""

import math
import os
import signal
import sys
import time
from pathlib import Path

STEPS, FAILS_AT, EVERY = 3000, 400, 10


def say(line: str) -> None:
    """Print the line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


rank = int(os.environ["RANK"])
checkpoint = Path(os.environ["RUNS"]) / f"checkpoint-{sys.argv[1]}"
first = int(checkpoint.read_text()) + 1 if checkpoint.exists() else 1
if rank == 0:
    say(f"training from step {first}")
for step in range(first, STEPS + 1):
    time.sleep(0.1)
    noise = 0.05 * math.sin(step * 1.7) * math.exp(-step / STEPS)
    loss = 2.3 * math.exp(-4 * step / STEPS) + 0.08 + noise
    if rank == 0 and step % EVERY == 0:
        rate = 3e-4 * (1 - step / STEPS)
        say(f"step {step}/{STEPS} loss={loss:.4f} accuracy={1 - loss / 2.6:.4f} lr={rate:.2e}")
        unfinished = checkpoint.with_suffix(".new")
        unfinished.write_text(str(step))
        unfinished.replace(checkpoint)  # whole, or not there: this process may be killed at any time
    if rank == 2 and step == FAILS_AT and first == 1:
        if sys.argv[1] == "raises":
            raise IndexError("label 10 is out of bounds: the model has 10 classes")
        os.kill(os.getpid(), signal.SIGKILL)
