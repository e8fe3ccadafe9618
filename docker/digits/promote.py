"""Make a model the champion if it is better than the one in service, on the images that nobody trains on.

Both are looked at here and now, on the same images. A challenger that is not better by the margin is refused, and that
is no error: `promotion/promoted` is 0 among the scalars then, and 1 if the model is the champion. Who is started again,
wherever it was killed, comes to the same end; a model that was promoted once and replaced since is not promoted again.

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
    """What became of a challenger."""

    champion: Decision | None
    is_promoted: bool
    because: str


def main() -> None:
    """Compare and promote as the command line says."""
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
    """Have the better one of both be the champion; whoever else decides meanwhile is compared with, too."""
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
    """Look at the champion as at the challenger, whatever was said about it when it was promoted."""
    score = network.score(files.read_model(championship.read_model(champion), CPU), data.load().held_out, CPU)
    print(
        f"champion {champion.generation}: accuracy {score.accuracy:.4f} ({score.correct} of {score.count})", flush=True
    )
    return score


def is_better(challenger: network.Score, champion: network.Score | None, margin: float) -> bool:
    """Tell whether the challenger knows more images than the champion, by the margin; any number is better than none.

    Counted in images, because shares of them do not add up exactly.
    """
    if not math.isfinite(challenger.loss):
        return False
    if champion is None:
        return True
    return challenger.correct - champion.correct >= max(1, round(margin * challenger.count, 6))


def tell(outcome: Outcome, score: network.Score, args: argparse.Namespace) -> None:
    """Say what has been decided, as a line and as scalars."""
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
    add("--margin", type=share, default=0.0, help="by how much it must be better; 0.01: a hundredth (default: at all)")
    add("--sha256", default="", help="which bytes are meant; others are an error (default: whatever is there)")
    default = os.environ.get("PTJOB_TFEVENTS_DIR") or None
    add("--log_dir", "--log-dir", type=Path, default=default, help="for the tfevents (default: $PTJOB_TFEVENTS_DIR)")
    return parser.parse_args()


def share(text: str) -> float:
    """Return a text's number from 0 to 1."""
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not allowed; allowed: 0 to 1")
    return value


if __name__ == "__main__":
    main()
