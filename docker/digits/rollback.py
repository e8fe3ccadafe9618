"""Make the champion before this one the champion again, or any earlier one.

The program checks the hash of the older model, copies it, and makes the copy the champion. It evaluates and deletes
nothing. If it is started again with the same `--by`, it does not go back further.

    python rollback.py --champion_dir champion --by "the night shift, 22 November"
    python rollback.py --champion_dir champion --by "the night shift, 23 November" --to 4
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import files
from champion import Championship, Decision
from report import Report, promotion


def main() -> None:
    """Return to the champion that the command line names, and report it."""
    args = parse_args()
    championship = Championship(args.champion_dir)
    champion = roll_back(championship, by=f"rollback {args.by}", to=args.to, save_path=args.save_path)
    report = Report(args.log_dir)
    report.scalars(promotion(champion, is_promoted=True), step=0)
    report.close()
    where = args.champion_dir / champion.model
    report.say(f"the champion is number {champion.generation}: {where}, accuracy {champion.accuracy:.4f}")


def roll_back(championship: Championship, *, by: str, to: int, save_path: Path | None) -> Decision:
    """Make an older model the champion again, under a new number, and return that decision.

    Raises:
        SystemExit: the older champion does not exist, or another process has made a decision meanwhile.
    """
    champion = championship.settle()
    history = {decision.generation: decision for decision in championship.history()}
    for decision in history.values():
        if decision.by == by:
            return _again(championship, decision)
    if champion is None:
        raise SystemExit(f"{championship.folder}: there is no champion yet")
    older = history.get(to or champion.previous or 0)
    if older is None:
        wanted = f"number {to}" if to else f"before number {champion.generation}"
        raise SystemExit(f"{championship.folder}: there is no champion {wanted}; allowed: {_numbers(history)}")
    content = championship.read_model(older)
    place = save_path or championship.place_for(older.sha256)
    files.write_over(content, place)
    if not championship.decide(
        by=by,
        model=place,
        sha256=older.sha256,
        accuracy=older.accuracy,
        previous=older.previous,
        after=champion.generation,
    ):
        raise SystemExit(
            f"{championship.folder}: the champion has changed meanwhile; read the history before another try"
        )
    return championship.settle() or older


def _again(championship: Championship, decision: Decision) -> Decision:
    """Write the model of an earlier decision of the same `--by` again, unchanged, and return the decision.

    Raises:
        SystemExit: the decision is not the newest.
    """
    newest = championship.history()[-1].generation
    if newest != decision.generation:
        number = decision.generation
        raise SystemExit(
            f"{decision.by}: already done, with champion {number}; the champion is {newest} now: use another --by"
        )
    files.write_over(championship.read_model(decision), championship.folder / decision.model)
    return decision


def _numbers(history: dict[int, Decision]) -> str:
    return ", ".join(map(str, history))


def parse_args() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--champion_dir", "--champion-dir", type=Path, required=True, help="folder of the champion and its history")
    add("--by", required=True, help="id of the request, such as a run id; a repeated id has no effect")
    add("--to", type=int, default=0, help="number of the champion to return to (default: 0, the one before)")
    add(
        "--save_path",
        "--save-path",
        type=Path,
        default=os.environ.get("PTJOB_MODEL_PATH") or None,
        help="where the older model is copied to (default: $PTJOB_MODEL_PATH, else where it was)",
    )
    add(
        "--log_dir",
        "--log-dir",
        type=Path,
        default=os.environ.get("PTJOB_TFEVENTS_DIR") or None,
        help="for the tfevents (default: $PTJOB_TFEVENTS_DIR)",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
