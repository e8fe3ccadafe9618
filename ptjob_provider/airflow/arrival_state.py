"""Stores a watcher's watermark in Airflow's asset store, so that it survives triggerers."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import TYPE_CHECKING, Any

from airflow.sdk.definitions.asset import AssetNameRef

from ptjob_provider.core.arrival import Watermark

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TIMEOUT = 30.0
"""Seconds for one request to the process that holds the triggerer's rows."""


class KeptWatermark:
    """Watermark of one watcher: a few values of at most 64 KB, stored with each of its assets.

    Two watchers of one asset use different keys; one watcher of two assets (Airflow merges two that are equal) writes
    to both.

    Args:
        store: the store that Airflow gives the trigger. None: nothing is stored.
        identity: what distinguishes the watcher: its source and its rules for batches.
    """

    def __init__(self, store: Any, identity: Mapping[str, Any]) -> None:
        self._accessors = _accessors(store)
        text = json.dumps(identity, sort_keys=True)
        self._name = f"ptjob_arrival_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
        self._written: list[str] | None = None

    async def read(self) -> Watermark:
        """Return what all assets have recorded.

        Raises what Airflow raises if its store is unreachable.
        """
        found = [await self._read(accessor) for accessor in self._accessors]
        if not found:
            self._written = []
            return Watermark()
        first, *others = [Watermark.from_pages(pages) for pages in found]
        for other in others:
            first = first.common(other)
        if not others:
            self._written = found[0]
        return first

    async def write(self, watermark: Watermark) -> None:
        """Write the changed pages, and their number last."""
        pages = watermark.pages()
        before = self._written or []
        for accessor in self._accessors:
            for number, page in enumerate(pages):
                if number >= len(before) or before[number] != page:
                    await self._set(accessor, f"{self._name}_{number}", page)
            if self._written is None or len(pages) != len(before):
                await self._set(accessor, self._name, {"pages": len(pages)})
        self._written = pages

    async def _read(self, accessor: Any) -> list[str]:
        async with asyncio.timeout(_TIMEOUT):
            head = await accessor.aget(self._name)
        count = head.get("pages", 0) if isinstance(head, dict) else 0
        pages = []
        for number in range(count):
            async with asyncio.timeout(_TIMEOUT):
                pages.append(await accessor.aget(f"{self._name}_{number}"))
        return [page if isinstance(page, str) else "" for page in pages]

    async def _set(self, accessor: Any, key: str, value: Any) -> None:
        async with asyncio.timeout(_TIMEOUT):
            await accessor.aset(key, value)


def _accessors(store: Any) -> Sequence[Any]:
    if store is None:
        return []
    names = sorted(store._by_name)  # noqa: SLF001 - the only way for a trigger to learn which assets it watches for
    return [store[AssetNameRef(name)] for name in names]
