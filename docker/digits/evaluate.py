"""Evaluate a model that train.py has written, on the held-out images.

The accuracy is printed, and written as a scalar, so that it is part of the job's result.

    python evaluate.py --model_path model.pt --log_dir tfevents
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch

import data
import files
import network
from report import Report, held_out


def main() -> None:
    """Evaluate the model that the command line names."""
    args = parse_args()
    torch.set_num_threads(1)
    device = torch.device("cpu")
    score = network.score(files.load_model(args.model_path, device), data.load().held_out, device)
    report = Report(args.log_dir)
    report.scalars(held_out(score), step=0)
    report.close()
    report.say(f"held-out accuracy {score.accuracy:.4f} ({score.correct} of {score.count}) of {args.model_path}")


def parse_args() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_path", "--model-path", type=Path, required=True, help="file that train.py has written")
    parser.add_argument(
        "--log_dir",
        "--log-dir",
        type=Path,
        default=os.environ.get("PTJOB_TFEVENTS_DIR") or None,
        help="directory for the tfevents (default: $PTJOB_TFEVENTS_DIR, else none are written)",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
