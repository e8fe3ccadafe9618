"""The champion: which model is in service, which were before, and how one follows another.

    champion/history/00000007.json    the seventh decision: a model, its hash, its accuracy, who was champion before
    champion/models/<hash>/model.pt   that model, copied: nothing that trains again writes over it
    champion/current.json             a copy of the newest decision, for whoever wants a fixed name

A decision is made by giving its file the next number: a link, which the file system makes once and as a whole. Of two
who decide at once one gets the number, and the other looks again. `current.json` is written aside and renamed; who was
killed before that is finished by whoever comes next. It needs what NFS, CephFS and disks have, and mounted buckets have
not: hard links, and renames that replace.
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
        generation: 1, 2, 3 …
        by: what was decided: `promote` and the model's hash, or `rollback` and the run that did it. Nothing is decided
            twice, however often whoever decides is started again.
        model: path of the file, as seen from the champion's folder.
        sha256: of that file.
        accuracy: on the held-out images, when it was promoted.
        previous: generation to which a rollback returns; None where there was none.
        decided_at: by the clock of who decided.
    """

    generation: int
    by: str
    model: str
    sha256: str
    accuracy: float
    previous: int | None
    decided_at: str = ""


class Championship:
    """The folder with the champion and its history."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def history(self) -> list[Decision]:
        """Return all decisions, the newest last."""
        paths = sorted((self.folder / HISTORY).glob("[0-9]*.json"))
        return [Decision(**json.loads(path.read_text())) for path in paths]

    def read_model(self, decision: Decision) -> bytes:
        """Return the bytes of a decision's model.

        Raises:
            SystemExit: the file is not there, or not what it was.
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
        """Return where the champion's copy of a model belongs."""
        return self.folder / MODELS / sha256[:16] / "model.pt"

    def decide(self, *, by: str, model: Path, sha256: str, accuracy: float, previous: int | None, after: int) -> bool:
        """Make a model the champion, unless another decision followed number `after`; tell whether it is now.

        From the link on it is, whatever becomes of this process.
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
        """Have `current.json` say what the newest decision says, and return that; None before the first.

        Looked at again afterwards: who writes last has then seen the newest.
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
