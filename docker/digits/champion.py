"""Read and replace the champion, which is the model in service, and keep the history of all champions.

    champion/history/00000007.json    the seventh decision: a model, its hash, its accuracy, and the champion before it
    champion/models/<hash>/model.pt   a copy of that model, which later trainings do not overwrite
    champion/current.json             a copy of the newest decision, for readers that need a fixed name

A decision is made by creating its file under the next number, as a hard link, which the file system creates atomically
and only once. If two processes decide at the same time, one gets the number; the other has to read the history again.
`current.json` is written under a temporary name and then renamed. If a process is killed before that, the next process
brings `current.json` up to date. The file system must support hard links and renames that replace a file: NFS, CephFS
and disks do, mounted buckets do not.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import files

if TYPE_CHECKING:
    from pathlib import Path

HISTORY, MODELS, CURRENT = "history", "models", "current.json"


@dataclass(frozen=True, kw_only=True)
class Decision:
    """A model that was made the champion.

    Attributes:
        generation: number of the decision: 1, 2, 3 …
        by: identity of the decision: `promote` and the model's hash, or `rollback` and the text of `--by`. A program
            that is started again finds its decision by this, and does not decide twice.
        model: path of the model's file, relative to the champion's folder.
        sha256: hash of that file.
        accuracy: accuracy on the held-out images when the model was promoted.
        previous: generation to which a rollback returns; None if there is none.
        decided_at: time of the decision, by the clock of the machine that made it.
    """

    generation: int
    by: str
    model: str
    sha256: str
    accuracy: float
    previous: int | None
    decided_at: str = ""


class Championship:
    """The folder of the champion and its history."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def history(self) -> list[Decision]:
        """Return all decisions, oldest first."""
        paths = sorted((self.folder / HISTORY).glob("[0-9]*.json"))
        return [Decision(**json.loads(path.read_text())) for path in paths]

    def read_model(self, decision: Decision) -> bytes:
        """Return the content of a decision's model file.

        Raises:
            SystemExit: the file is missing, or has changed since the decision.
        """
        path = self.folder / decision.model
        advice = f"bring it back, or return to another one: rollback.py --champion_dir={self.folder} --to=GENERATION"
        if not path.is_file():
            raise SystemExit(f"champion {decision.generation}: {path} is not there; {advice}")
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != decision.sha256:
            raise SystemExit(f"champion {decision.generation}: {path} has changed since it was promoted; {advice}")
        return content

    def place_for(self, sha256: str) -> Path:
        """Return the path for the champion's copy of the model with this hash."""
        return self.folder / MODELS / sha256[:16] / "model.pt"

    def decide(self, *, by: str, model: Path, sha256: str, accuracy: float, previous: int | None, after: int) -> bool:
        """Make a model the champion if `after` is still the newest decision; return whether it is the champion now.

        The decision is final once its file exists, even if this process is killed at that moment.
        """
        decision = Decision(
            generation=after + 1,
            by=by,
            model=os.path.relpath(model, self.folder),
            sha256=sha256,
            accuracy=accuracy,
            previous=previous,
            decided_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        path = self.folder / HISTORY / f"{decision.generation:08d}.json"
        return files.write_once(json.dumps(asdict(decision), indent=2).encode(), path)

    def settle(self) -> Decision | None:
        """Copy the newest decision to `current.json` and return it; None if there is no decision yet.

        After writing, the history is read again, because another process may have made a decision meanwhile. So the
        last process to write has written the newest decision.
        """
        while True:
            history = self.history()
            newest = history[-1] if history else None
            if newest is None or self._current() == newest:
                return newest
            files.write_over(json.dumps(asdict(newest), indent=2).encode(), self.folder / CURRENT)

    def _current(self) -> Decision | None:
        path = self.folder / CURRENT
        return Decision(**json.loads(path.read_text())) if path.is_file() else None
