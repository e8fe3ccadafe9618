"""A stand-in for a training program: its first argument selects what it does; its rank comes from the environment.

It imports only the standard library, so that it starts in milliseconds.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import time
from pathlib import Path

WORK = Path(os.environ["WORK"])
RANK = int(os.environ.get("RANK", "0"))

say = functools.partial(print, flush=True)


def finish(*_: str) -> None:
    """Write the model and end."""
    path = os.environ.get("PTJOB_MODEL_PATH")
    if path and RANK == 0:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text("weights")
    say(f"rank {RANK} finished")


def wait_for(name: str) -> None:
    """Print one line per second until a file of that name is in the claim, then finish; ignore SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    began = time.monotonic()
    count = 0
    say(f"rank {RANK} waits for {name}")
    while not (WORK / name).exists():
        if time.monotonic() - began >= count:
            say(f"tick {count:04d} of {os.environ.get('PTJOB_ATTEMPT')}")
            count += 1
        time.sleep(0.05)
    finish()


def count(name: str) -> None:
    """Print ten numbered lines with the time per second until a file of that name is in the claim, then finish."""
    with (WORK / f"{name}.begun").open("a") as begun:
        begun.write("once\n")
    number = 0
    while not (WORK / name).exists():
        say(f"line {number:06d} at {time.time():.3f}")
        number += 1
        time.sleep(0.1)
    (WORK / f"{name}.lines").write_text(str(number))
    finish()


def lines(count: str) -> None:
    """Print numbered lines, one line of 2 MB, and bytes that are not valid UTF-8."""
    out = sys.stdout.buffer
    for number in range(int(count)):
        out.write(b"line %06d of a long log, with some text behind it\n" % number)
    out.write(b"big " + b"0123456789abcdef" * (2 * 1024 * 1024 // 16) + b" end\n")
    out.write(b"caf\xe9 \xff\xfe bytes\n")
    out.write("käse ✓ characters\n".encode())
    out.flush()
    finish()


def live(name: str) -> None:
    """Print the current time four times a second until a file of that name is in the claim."""
    while not (WORK / name).exists():
        say(f"printed at {time.time():.3f}")
        time.sleep(0.25)
    finish()


def raise_on(rank: str) -> None:
    """Raise on one rank; the others sleep until they are stopped."""
    if int(rank) == RANK:
        say("about to fail")
        raise NameError("name 'optimiser' is not defined")
    time.sleep(3600)


def no_output() -> None:
    """Exit successfully without writing the model."""
    say("forgot to save")


def resume(name: str) -> None:
    """Count steps from the checkpoint; the first attempt then waits for a file."""
    folder = Path(os.environ["PTJOB_CHECKPOINT_DIR"])
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = folder / "step"
    first = int(checkpoint.read_text()) if checkpoint.exists() else 0
    for step in range(first, first + 3):
        say(f"attempt {os.environ['PTJOB_ATTEMPT']} step {step}")
        checkpoint.write_text(str(step + 1))
    if os.environ["PTJOB_ATTEMPT"] == "1":
        wait_for(name)
    finish()


def leave(name: str, message: str) -> None:
    """Wait until a file of that name is in the claim; leave its bytes as the termination message."""
    while not (WORK / name).exists():
        time.sleep(0.05)
    Path(message).write_bytes((WORK / name).read_bytes())


def die_with(name: str) -> None:
    """Wait until a file of that name is in the claim; print its bytes and fail."""
    leave(name, os.devnull)
    sys.stdout.buffer.write((WORK / name).read_bytes())
    sys.exit(1)


def secret(name: str, code: str = "0") -> None:
    """Read a secret, wait for a file of that name, print the secret as a careless program would, and exit."""
    value = os.environ["TOKEN"]
    say(f"token of {len(value)} characters")
    wait_for(name)
    say(f"the token is {value}")
    sys.exit(int(code))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
