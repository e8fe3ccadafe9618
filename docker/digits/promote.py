"""Make a model, the challenger, the champion if it is better than the current champion on the held-out images.

The program evaluates both models on the same images. A challenger that is not better by the margin is refused, which is
not an error: the scalar `promotion/promoted` is 1 if the challenger is the champion, and 0 if not. If the program is
killed at any point and started again, its outcome is the same. A model that was promoted before and has been replaced
since is not promoted again.

    python promote.py --model_path models/7/model.pt --champion_dir champion --margin 0.002
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
from pathlib import Path
from typing import NamedTuple

import torch

import data
import files
import network
from champion import Championship, Decision
from report import Report, held_out, promotion

CPU = torch.device("cpu")


class Outcome(NamedTuple):
    """Outcome for a challenger: the champion now, whether it is the challenger, and the reason."""

    champion: Decision | None
    is_promoted: bool
    because: str


def main() -> None:
    """Compare the challenger with the champion, promote it if it is better, and report the outcome."""
    args = parse_args()
    torch.set_num_threads(1)
    content = args.model_path.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    if args.sha256 and sha256 != args.sha256:
        raise SystemExit(
            f"{args.model_path}: its sha256 is {sha256}, not {args.sha256}: it was written again meanwhile"
        )
    score = network.score(files.read_model(content, CPU), data.load().held_out, CPU)
    outcome = promote(Championship(args.champion_dir), content, sha256, score, margin=args.margin)
    tell(outcome, score, args)


def promote(
    championship: Championship, content: bytes, sha256: str, challenger: network.Score, *, margin: float
) -> Outcome:
    """Promote the challenger if it is better than the champion, and return the outcome.

    If another process makes a decision meanwhile, the challenger is compared with the new champion.
    """
    by = f"promote {sha256}"
    while True:
        champion = championship.settle()
        if champion and any(decision.by == by for decision in championship.history()):
            is_still = champion.sha256 == sha256
            return Outcome(champion, is_still, f"was promoted before{'' if is_still else ', and replaced since'}")
        if not is_better(challenger, champion and rate(championship, champion), margin):
            return Outcome(champion, is_promoted=False, because=f"is not better by a margin of {margin}")
        place = championship.place_for(sha256)
        files.write_over(content, place)
        number = champion.generation if champion else 0
        if championship.decide(
            by=by, model=place, sha256=sha256, accuracy=challenger.accuracy, previous=number or None, after=number
        ):
            return Outcome(championship.settle(), is_promoted=True, because="is better")


def rate(championship: Championship, champion: Decision) -> network.Score:
    """Evaluate the champion like the challenger, instead of relying on the accuracy in its decision."""
    score = network.score(files.read_model(championship.read_model(champion), CPU), data.load().held_out, CPU)
    print(
        f"champion {champion.generation}: accuracy {score.accuracy:.4f} ({score.correct} of {score.count})", flush=True
    )
    return score


def is_better(challenger: network.Score, champion: network.Score | None, margin: float) -> bool:
    """Return whether the challenger classifies more images correctly than the champion, by the margin.

    Without a champion, any challenger is better; a challenger whose loss is not finite never is. The comparison uses
    numbers of images, because floating-point fractions do not add up exactly.
    """
    if not math.isfinite(challenger.loss):
        return False
    if champion is None:
        return True
    return challenger.correct - champion.correct >= max(1, round(margin * challenger.count, 6))


def tell(outcome: Outcome, score: network.Score, args: argparse.Namespace) -> None:
    """Print the outcome as a line and write it as scalars."""
    report = Report(args.log_dir)
    report.scalars({**held_out(score), **promotion(outcome.champion, is_promoted=outcome.is_promoted)}, step=0)
    report.close()
    number = f"number {outcome.champion.generation}" if outcome.champion else "nobody"
    ending = f"it is the champion, {number}" if outcome.is_promoted else f"refused; the champion is {number}"
    said = f"held-out accuracy {score.accuracy:.4f} ({score.correct} of {score.count})"
    report.say(f"{said} of {args.model_path} {outcome.because}: {ending}")


def parse_args() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--model_path", "--model-path", type=Path, required=True, help="the challenger, written by train.py")
    add("--champion_dir", "--champion-dir", type=Path, required=True, help="folder of the champion and its history")
    add("--margin", type=share, default=0.0, help="minimum gain in accuracy, 0 to 1 (default: 0, any gain)")
    add("--sha256", default="", help="expected SHA-256 of the model file (default: not checked)")
    default = os.environ.get("PTJOB_TFEVENTS_DIR") or None
    add("--log_dir", "--log-dir", type=Path, default=default, help="for the tfevents (default: $PTJOB_TFEVENTS_DIR)")
    return parser.parse_args()


def share(text: str) -> float:
    """Parse an argument that is a number from 0 to 1."""
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not allowed; allowed: 0 to 1")
    return value


if __name__ == "__main__":
    main()
