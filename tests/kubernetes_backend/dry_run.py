"""Dry runs of a manifest: every admission step, nothing stored, and what the API server would store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptjob_provider.core.kubernetes.client import paths

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ptjob_provider.core.kubernetes.client.http import Client


async def dry_run(client: Client, manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the object as the API server would store it; an unknown field is an error, as in a submission.

    Raises:
        InvalidSpec: the schema, the API server or the operator's webhook refuses it.
    """
    path = paths.jobs(manifest["kind"], manifest["metadata"]["namespace"])
    return await client.post(path, manifest, dryRun="All", fieldValidation="Strict")


def lost(sent: object, found: object, path: str = "") -> Iterator[str]:
    """Yield each path whose value changed on the way; additions do not count, and null equals a missing value."""
    if isinstance(sent, dict) and isinstance(found, dict):
        for name, part in sent.items():
            if part is not None:
                yield from lost(part, found.get(name), f"{path}.{name}")
    elif isinstance(sent, list) and isinstance(found, list) and len(sent) == len(found):
        for index, (part, other) in enumerate(zip(sent, found, strict=True)):
            yield from lost(part, other, f"{path}[{index}]")
    elif type(sent) is not type(found) or sent != found:
        yield f"{path}: sent {sent!r}, found {found!r}"
