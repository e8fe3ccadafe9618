"""Annotations of a local claim: a file next to its directory.

`claims/<namespace>/.<claim>.annotations.json` is a JSON object of annotations by name, as in a cluster's claim
metadata. No claim can have such a name itself. Writers replace the file atomically (write a temporary file, rename it);
a partially written one is read again a moment later.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from ptjob_provider.core.backend import Claim
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.local.volumes import claim_directory

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

_INTERVAL = 1.0
"""Seconds between polls."""

_HALF_WRITTEN = 3
"""Consecutive reads of invalid JSON before it is an error."""


def annotations_file(claims: Path, claim: str) -> Path:
    """Return the path of a claim's annotations, existing or not.

    Raises:
        InvalidSpec: the claim's name is invalid.
    """
    return claims / f".{claim_directory(claims, claim).name}.annotations.json"


async def watched_claim(claims: Path, claim: str) -> AsyncGenerator[Claim, None]:
    """Yield the claim's states; see `Backend.watch_claim`. A local claim always exists.

    Raises:
        InvalidSpec: its annotations are permanently unreadable.
    """
    file = annotations_file(claims, claim)
    seen, failures = None, 0
    while True:
        try:
            found = await asyncio.to_thread(_read, file)
        except InvalidSpec:
            failures += 1
            if failures >= _HALF_WRITTEN:
                raise
        else:
            failures = 0
            if found != seen:
                seen = found
                yield found
        await asyncio.sleep(_INTERVAL)


def _read(file: Path) -> Claim:
    try:
        found = json.loads(file.read_bytes())
    except FileNotFoundError:
        found = {}
    except ValueError as error:
        raise InvalidSpec(f"{file}: {error}; allowed: a JSON object of annotations, texts by their names") from error
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise InvalidSpec.of(str(file), found, "allowed: a JSON object of annotations, texts by their names")
    return Claim(uid="", annotations=found)
