"""Programs are built once, however many ask for them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster import binaries
from cluster.binaries import Binaries, Family

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest


def test_two_who_ask_at_once_build_a_program_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one waits for the first one's build instead of putting its own beside it."""
    family, built = Family(name="pause", estimate=1), Binaries(tmp_path / "bin")
    both, commands = threading.Barrier(2), []

    def go_stand_in(command: Sequence[str], **_: Any) -> None:
        commands.append(command)
        (Path(command[command.index("-o") + 1]) / "pause").touch()

    def ask() -> None:
        both.wait()
        built.build(lambda _: None, [family])

    monkeypatch.setattr(binaries, "run", go_stand_in)
    with ThreadPoolExecutor(2) as pool:
        for asked in [pool.submit(ask), pool.submit(ask)]:
            asked.result()

    assert [path.name for path in built.folder(family).iterdir()] == ["pause"]
    assert len(commands) == 1
