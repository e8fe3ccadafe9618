"""Tests of following claims on a cluster: annotations that writers put on them."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ptjob_provider.core.backend import Claim
    from worlds import World

NOTE = "ptjob.dev/arrived"

pytestmark = pytest.mark.parametrize(
    "world", [pytest.param("kubernetes", marks=pytest.mark.cluster)], indirect=True, ids=["kubernetes"]
)


def notes_of(claim: Claim | None) -> dict[str, str]:
    """Return the writers' annotations, without those of the cluster itself."""
    return {key: value for key, value in claim.annotations.items() if key.startswith(NOTE)} if claim else {}


async def until(states: AsyncGenerator[Claim | None, None], notes: dict[str, str]) -> Claim | None:
    """Return the first state with exactly these annotations."""
    async for state in states:
        if notes_of(state) == notes:
            return state
    raise AssertionError("the claim's states ended")


async def test_annotations_of_a_claim_are_reported(world: World) -> None:
    """Those that exist before, and those that are added, changed and removed."""
    await asyncio.to_thread(world.annotate, "data", {NOTE: "incoming/1"})

    async with asyncio.timeout(world.patience), aclosing(world.backend.watch_claim(world.namespace, "data")) as states:
        await until(states, {NOTE: "incoming/1"})
        await asyncio.to_thread(world.annotate, "data", {f"{NOTE}.2": "incoming/2"})
        await until(states, {NOTE: "incoming/1", f"{NOTE}.2": "incoming/2"})
        await asyncio.to_thread(world.annotate, "data", {NOTE: None, f"{NOTE}.2": "incoming/2b"})
        await until(states, {f"{NOTE}.2": "incoming/2b"})


async def test_a_claim_is_followed_apart_from_its_neighbour(world: World) -> None:
    await asyncio.to_thread(world.annotate, "data", {NOTE: "1"})
    await asyncio.to_thread(world.annotate, "other", {NOTE: "elsewhere"})

    backend = world.backend
    async with (
        asyncio.timeout(world.patience),
        aclosing(backend.watch_claim(world.namespace, "data")) as states,
        aclosing(backend.watch_claim(world.namespace, "other")) as others,
    ):
        await until(states, {NOTE: "1"})
        await until(others, {NOTE: "elsewhere"})
        await asyncio.to_thread(world.annotate, "other", {NOTE: "again"})
        await until(others, {NOTE: "again"})
        await asyncio.to_thread(world.annotate, "data", {NOTE: "2"})
        await until(states, {NOTE: "2"})
