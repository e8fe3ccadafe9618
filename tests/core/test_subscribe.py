"""Tests of sharing informers between followers; stand-in informers have all jobs."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.kubernetes import ClusterConfig
from ptjob_provider.core.kubernetes.informer import informer, subscribe
from ptjob_provider.core.kubernetes.informer.cache import JobCache

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ptjob_provider.core.kubernetes.informer.scope import WatchScope

pytestmark = pytest.mark.skips_waits


async def test_jobs_of_one_name_in_two_namespaces_are_watched_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """One triggerer follows both on one loop, over one connection; each informer watches one namespace."""
    made: list[str] = []

    class StandInBoard:
        def __init__(self, selection: WatchScope) -> None:
            made.append(selection.namespace)

        async def run(self) -> None:
            await asyncio.Event().wait()

        def fail(self, error: BaseException) -> None:
            raise error

        @asynccontextmanager
        async def subscription(self, ref: JobRef) -> AsyncIterator[JobCache]:
            yield JobCache(ref)

    monkeypatch.setattr(informer, "JobInformer", StandInBoard)
    monkeypatch.setattr(informer, "_LINGER", 0.0)
    one, other = (
        JobRef(kind="PyTorchJob", namespace=each, name="digits", uid=f"u-{each}") for each in ("one", "other")
    )

    async with subscribe(ClusterConfig(), one), subscribe(ClusterConfig(), other):
        pass

    assert made == ["one", "other"]
