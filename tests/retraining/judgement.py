"""Whether each batch was new data of exactly one successful training: from what rank 0 itself has read, and no log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Files = Mapping[str, str]
    """Path within a batch → SHA-256."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """One training.

    Attributes:
        number: which one of its series began, counted from 0.
        run_id: of the run that it belonged to.
        succeeded: whether Airflow has its task as successful.
        fate: what was planned for it.
        new: the batches that it was told are new.
        read: the batches that its rank 0 has read, with their files.
    """

    number: int
    run_id: str
    succeeded: bool
    fate: str = "success"
    new: frozenset[str] = frozenset()
    read: Mapping[str, Files]

    @classmethod
    def of(cls, note: Mapping[str, Any], *, succeeded: bool) -> Self:
        """Return the training that has left this note."""
        return cls(
            number=note["number"],
            run_id=note["run_id"],
            succeeded=succeeded,
            fate=note["fate"],
            new=frozenset(note["new"]),
            read=note["read"],
        )


def faults(dropped: Mapping[str, Files], trainings: Iterable[Training]) -> list[str]:
    """Return what is wrong, a sentence each; nothing is if there is none.

    Args:
        dropped: the batches that were dropped, with their files.
        trainings: all that have left a note, failed ones too.
    """
    in_order = sorted(trainings, key=lambda each: each.number)
    good = [each for each in in_order if each.succeeded]
    found = [f"training {each.number} succeeded and was to {each.fate}" for each in good if each.fate != "success"]
    found += _of_runs(good)
    for each in in_order:
        found += _of_content(dropped, each)
    for name in sorted(dropped):
        found += _of_batch(name, good)
    return found


def _of_runs(good: Sequence[Training]) -> list[str]:
    """Say which runs have trained with success more than once."""
    runs = [each.run_id for each in good]
    return [f"run {run} has {runs.count(run)} successful trainings" for run in sorted(set(runs)) if runs.count(run) > 1]


def _of_content(dropped: Mapping[str, Files], training: Training) -> list[str]:
    """Say what a training has read that was not dropped so, or was told and has not read."""
    who = f"training {training.number}"
    unread = [f"{who} was told that {name} is new and has not read it" for name in training.new - set(training.read)]
    strange = [f"{who} has read {name}, which nobody dropped" for name in set(training.read) - set(dropped)]
    other = [
        f"{who} has read other files of {name} than were dropped"
        for name, files in training.read.items()
        if name in dropped and dict(files) != dict(dropped[name])
    ]
    return sorted([*unread, *strange, *other])


def _of_batch(name: str, good: Sequence[Training]) -> list[str]:
    """Say what became of one batch, unless it was new in exactly one successful training and is in all later ones."""
    new_in = [each.number for each in good if name in each.new]
    if not new_in:
        return [f"{name} was lost: it was new in no successful training"]
    if len(new_in) > 1:
        return [f"{name} was new more than once: in the trainings {new_in}"]
    early = [each.number for each in good if each.number < new_in[0] and name in each.read]
    late = [each.number for each in good if each.number > new_in[0] and name not in each.read]
    found = [f"{name} was read by the trainings {early} before it was new in {new_in[0]}"] if early else []
    return [*found, *([f"{name}, new in training {new_in[0]}, is missing in {late}"] if late else [])]
