"""Print lines for people and write scalars for TensorBoard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.utils.tensorboard import SummaryWriter

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from champion import Decision
    from network import Score


class Report:
    """Prints lines and writes scalars on rank 0; does nothing on other ranks.

    Args:
        log_dir: the directory for the tfevents; None: none are written.
        speaks: whether this is rank 0.
        first_step: first step of this attempt; TensorBoard hides points from earlier attempts at this and later steps.
    """

    def __init__(self, log_dir: Path | None, *, speaks: bool = True, first_step: int = 0) -> None:
        self._speaks = speaks
        self._writer = SummaryWriter(str(log_dir), purge_step=first_step or None) if speaks and log_dir else None

    def say(self, line: str) -> None:
        """Print a line and flush the output."""
        if self._speaks:
            print(line, flush=True)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Write one point of each curve and flush the file, so that no point is lost if this process is killed."""
        if self._writer:
            for tag, value in values.items():
                self._writer.add_scalar(tag, value, step)
            self._writer.flush()

    def close(self) -> None:
        """Finish the tfevents file."""
        if self._writer:
            self._writer.close()


def held_out(score: Score) -> dict[str, float]:
    """Return the scalars of a score on the held-out images; training and evaluation use the same names."""
    return {"held_out/accuracy": score.accuracy, "held_out/loss": score.loss}


def promotion(champion: Decision | None, *, is_promoted: bool) -> dict[str, float]:
    """Return the scalars of a decision: the champion afterwards, and whether the model in question was promoted."""
    known = {"champion/accuracy": champion.accuracy} if champion else {}
    number = champion.generation if champion else 0
    return {**known, "promotion/promoted": float(is_promoted), "promotion/generation": float(number)}
