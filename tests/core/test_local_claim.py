"""Tests of the file that replaces a claim's annotations on one machine."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.local import LocalBackend, LocalConfig
from ptjob_provider.core.local.backend import annotations_file
from rows import each_row

if TYPE_CHECKING:
    from pathlib import Path


@each_row("text", ["{", "[]", '{"ptjob.dev/arrived": 1}'])
async def test_a_wrong_file_is_refused(tmp_path: Path, text: str) -> None:
    file = annotations_file(tmp_path / "claims/default", "data")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    backend = LocalBackend(LocalConfig(root=tmp_path))

    with pytest.raises(InvalidSpec, match="a JSON object of annotations, texts by their names") as raised:
        async with aclosing(backend.watch_claim("default", "data")) as states:
            await anext(states)

    assert str(file) in str(raised.value)


def test_no_name_leads_out_of_the_claims(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="allowed: lower-case letters"):
        annotations_file(tmp_path, "../data")
