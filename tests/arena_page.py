"""What docs/from-arena.md says, for the tests that run it: on this machine and on a cluster."""

from __future__ import annotations

import shlex
from pathlib import Path

PAGE = (Path(__file__).parent.parent / "docs" / "from-arena.md").read_text()
ADDRESS = "https://code.example/mnist.git"
IMAGE = "mnist:1"
PROGRAM = """
import os, pathlib, sys, time
assert sys.argv[1:4] == ["--backend", "gloo", "--data"], sys.argv
for number in range(8):
    print("WORLD_SIZE:", os.environ["WORLD_SIZE"], "RANK:", os.environ["RANK"], "step", number, flush=True)
pathlib.Path(sys.argv[4], f"rank-{os.environ['RANK']}").touch()
while os.environ["RANK"] == "0" and not pathlib.Path(sys.argv[4], "rank-1").exists(): pass
time.sleep(4 if os.environ["RANK"] == "0" else 0)
"""
"""What the session trains. Rank 0 ends last: a replica that runs when the job has ended is stopped, log and all."""


def session(**replaced: str) -> list[list[str]]:
    """Return the words behind `ptjob` of each line of the page's session, with the image and the address of a test."""
    part = PAGE.partition("## A session")[2].partition("\n## ")[0]
    lines = [shlex.split(line.strip())[1:] for line in part.splitlines() if line.startswith("    ptjob ")]
    for given, own in {ADDRESS: replaced.get("address", ADDRESS), IMAGE: replaced.get("image", IMAGE)}.items():
        lines = [[word.replace(given, own) for word in line] for line in lines]
    return lines


def logged(rank: int) -> list[str]:
    """Return the lines that the session's program prints."""
    return [f"WORLD_SIZE: 2 RANK: {rank} step {number}" for number in range(8)]


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table below a heading, without its head."""
    part = PAGE.partition(f"## {heading}")[2].partition("\n## ")[0]
    found = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| `")]
    return [[cell.strip(" |") for cell in row] for row in found]
