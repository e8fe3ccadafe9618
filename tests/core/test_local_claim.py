"""The file that stands for a claim's annotations on this machine: half-written, wrong, misnamed."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.local import backend as claims
from ptjob_provider.core.local.backend import annotations_file, watched_claim

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look each hundredth of a second: a watcher's second is long in a test."""
    monkeypatch.setattr(claims, "_INTERVAL", 0.01)


async def test_a_half_written_file_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever does not rename has a moment to finish."""
    monkeypatch.setattr(claims, "_HALF_WRITTEN", 1000)  # looks; they follow each other a hundred times as fast here
    file = annotations_file(tmp_path, "data")
    async with asyncio.timeout(10), aclosing(watched_claim(tmp_path, "data")) as states:
        first = await anext(states)
        file.write_text('{"ptjob.dev/arr')
        waiting = asyncio.ensure_future(anext(states))
        await asyncio.sleep(0.05)
        file.write_text('{"ptjob.dev/arrived": "1"}')
        second = await waiting

    assert first.annotations == {}
    assert second.annotations == {"ptjob.dev/arrived": "1"}


@pytest.mark.parametrize("text", ["{", "[]", '{"ptjob.dev/arrived": 1}'])
async def test_a_file_that_stays_wrong_is_refused(tmp_path: Path, text: str) -> None:
    """The text names the file and what is allowed."""
    file = annotations_file(tmp_path, "data")
    file.write_text(text)

    with pytest.raises(InvalidSpec, match="a JSON object of annotations, texts by their names") as raised:
        async with asyncio.timeout(10), aclosing(watched_claim(tmp_path, "data")) as states:
            await anext(states)

    assert str(file) in str(raised.value)


def test_no_name_leads_out_of_the_claims(tmp_path: Path) -> None:
    """A claim's name is a claim's name."""
    with pytest.raises(InvalidSpec, match="allowed: lower-case letters"):
        annotations_file(tmp_path, "../data")
