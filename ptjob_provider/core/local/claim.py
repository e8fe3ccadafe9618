"""What writers have noted on a claim of this machine: a file beside its directory stands for its annotations.

`claims/<namespace>/.<claim>.annotations.json` is a JSON object of annotations by their names, as a cluster has them in
the claim's metadata. No claim can have such a name itself. Whoever writes it puts a whole file in its place (write
beside it, rename): one that is read half-written is read again a moment later.
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
"""Seconds between looks."""

_HALF_WRITTEN = 3
"""How often in a row a file may be no JSON before it is said to be wrong."""


def annotations_file(claims: Path, claim: str) -> Path:
    """Return where a claim's annotations are on this machine, whether or not there are any.

    Raises:
        InvalidSpec: the name is none that a claim can have.
    """
    return claims / f".{claim_directory(claims, claim).name}.annotations.json"


async def watched_claim(claims: Path, claim: str) -> AsyncGenerator[Claim, None]:
    """Yield the claim's states; see `Backend.watch_claim`. A claim of this machine is always there.

    Raises:
        InvalidSpec: its annotations cannot be read, and that stays so.
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
