"""Say from which checkpoint an attempt goes on, by the report of `in_pod/find_checkpoint`. Pure."""

from __future__ import annotations

import json
import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from ptjob_provider.core.outgoing import outgoing
from ptjob_provider.core.versions import MALFORMED, Record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ptjob_provider.core.outputs.contract import ResolvedOutput

RESUME_ENV = "PTJOB_RESUME_FROM"


@dataclass(frozen=True, kw_only=True)
class Checkpoint(Record):
    """The newest complete checkpoint of a folder.

    Attributes:
        path: its path below the folder; "" for the folder itself, None if there is none.
        step: the step in its name; None if it has none.
        order: why it is the newest one.
        skipped: path of newer checkpoints, and why each is not complete; not all of many.
        older: number of checkpoints from before the task's first attempt.
    """

    path: str | None = None
    step: int | None = None
    order: str = ""
    skipped: Sequence[Sequence[str]] = ()
    older: int = 0

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Parse the report of `find_checkpoint`; None if it is none."""
        try:
            return cls.from_dict(outgoing(json.loads(text)))
        except MALFORMED:
            return None

    def variables(self, folder: ResolvedOutput) -> dict[str, str]:
        """Return the variable with the checkpoint's path in the container; none without a checkpoint."""
        if self.path is None:
            return {}
        return {RESUME_ENV: posixpath.join(folder.container_path, self.path).rstrip("/")}

    def sentence(self, folder: ResolvedOutput) -> str:
        """Return what the log says about the choice."""
        step = "" if self.step is None else f", step {self.step}"
        result = f"no complete checkpoint is below {folder.uri}, so it gets no {RESUME_ENV}"
        if self.path is not None:
            result = f"it gets {posixpath.join(folder.uri, self.path).rstrip('/')} as {RESUME_ENV}{step} ({self.order})"
        skipped = [f"skipped {name or '.'}: {reason}" for name, reason in self.skipped]
        older = [f"{self.older} of before the task's first attempt"] if self.older else []
        return "; ".join([result, *skipped, *older])
