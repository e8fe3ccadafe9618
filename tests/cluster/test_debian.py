"""What comes from the distribution is installed once, however many ask for it."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from cluster import debian

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_of_two_who_miss_a_package_the_second_waits_and_finds_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """apt-get does not wait for another one: it fails. A stand-in for it says what is done."""
    there: set[str] = set()
    done: list[str] = []

    def stand_in(argv: list[str], **_: object) -> str:
        done.append(argv[1])
        time.sleep(0.1)
        if argv[1] == "install":
            there.add(argv[-1])
        return ""

    monkeypatch.setattr(debian, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(debian, "run", stand_in)
    monkeypatch.setattr(debian, "missing", lambda packages: [name for name in packages if name not in there])
    monkeypatch.setattr(debian.os, "geteuid", lambda: 0)

    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(debian.install, ("postgresql",), lambda _: None) for _ in range(2)]
    for each in both:
        each.result()

    assert done == ["update", "install"]
