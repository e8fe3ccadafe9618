"""Check that each batch was new data of exactly one successful training, by the files that rank 0 read, not by logs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Files = Mapping[str, str]
    """Path within a batch → SHA-256."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """One training.

    Attributes:
        number: position among the trainings by start, counted from 0.
        run_id: its DAG run.
        succeeded: whether its task is successful in Airflow.
        fate: planned end.
        new: batches that were passed to it as new.
        read: batches that its rank 0 read, with their files.
    """

    number: int
    run_id: str
    succeeded: bool
    fate: str = "success"
    new: Sequence[str] = ()
    read: Mapping[str, Files]


def faults(dropped: Mapping[str, Files], trainings: Iterable[Training]) -> list[str]:
    """Return one sentence per problem.

    Args:
        dropped: all batches that were written, with their files.
        trainings: all trainings that wrote a note, including failed ones.
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
    """Return runs with more than one successful training."""
    runs = [each.run_id for each in good]
    return [f"run {run} has {runs.count(run)} successful trainings" for run in sorted(set(runs)) if runs.count(run) > 1]


def _of_content(dropped: Mapping[str, Files], training: Training) -> list[str]:
    """Return differences between the batches that were written, those passed as new and those that were read."""
    who = f"training {training.number}"
    unread = [f"{who} was told that {name} is new and has not read it" for name in {*training.new} - {*training.read}]
    strange = [f"{who} has read {name}, which nobody dropped" for name in set(training.read) - set(dropped)]
    other = [
        f"{who} has read other files of {name} than were dropped"
        for name, files in training.read.items()
        if name in dropped and dict(files) != dict(dropped[name])
    ]
    return sorted([*unread, *strange, *other])


def _of_batch(name: str, good: Sequence[Training]) -> list[str]:
    """Return problems of one batch: it must be new in exactly one successful training, and part of all later ones."""
    new_in = [each.number for each in good if name in each.new]
    if not new_in:
        return [f"{name} was lost: it was new in no successful training"]
    if len(new_in) > 1:
        return [f"{name} was new more than once: in the trainings {new_in}"]
    early = [each.number for each in good if each.number < new_in[0] and name in each.read]
    late = [each.number for each in good if each.number > new_in[0] and name not in each.read]
    found = [f"{name} was read by the trainings {early} before it was new in {new_in[0]}"] if early else []
    return [*found, *([f"{name}, new in training {new_in[0]}, is missing in {late}"] if late else [])]
