"""What a training or an evaluation tells: lines for people, scalars for TensorBoard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.utils.tensorboard import SummaryWriter

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from champion import Decision
    from network import Score


class Report:
    """Prints lines and writes scalars, on rank 0; the other ranks' reports are silent.

    Args:
        log_dir: the directory for the tfevents; None writes none.
        speaks: whether this is rank 0.
        first_step: points that an earlier attempt wrote for this step or later ones are not shown any more.
    """

    def __init__(self, log_dir: Path | None, *, speaks: bool = True, first_step: int = 0) -> None:
        self._speaks = speaks
        self._writer = SummaryWriter(str(log_dir), purge_step=first_step or None) if speaks and log_dir else None

    def say(self, line: str) -> None:
        """Print a line; it is readable at once."""
        if self._speaks:
            print(line, flush=True)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Write one point of each curve; it outlives this process from now on."""
        if self._writer:
            for tag, value in values.items():
                self._writer.add_scalar(tag, value, step)
            self._writer.flush()

    def close(self) -> None:
        """Finish the tfevents file."""
        if self._writer:
            self._writer.close()


def held_out(score: Score) -> dict[str, float]:
    """Name the scalars of a score on the held-out images; training and evaluation use the same names."""
    return {"held_out/accuracy": score.accuracy, "held_out/loss": score.loss}


def promotion(champion: Decision | None, *, is_promoted: bool) -> dict[str, float]:
    """Name the scalars of who is champion after a decision, and whether that is the model it was about."""
    known = {"champion/accuracy": champion.accuracy} if champion else {}
    number = champion.generation if champion else 0
    return {**known, "promotion/promoted": float(is_promoted), "promotion/generation": float(number)}
