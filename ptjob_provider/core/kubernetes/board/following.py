"""Who follows a job gets its world from the board that costs least: one of its own, or the one of all the others."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from ptjob_provider.core.hub import joined, open_keys, opened
from ptjob_provider.core.kubernetes.board.board import Board
from ptjob_provider.core.kubernetes.board.selection import Selection
from ptjob_provider.core.kubernetes.board.world import World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ptjob_provider.core.identity import JobRef
    from ptjob_provider.core.kubernetes.config import ClusterConfig

_LINGER = 10.0
"""Seconds that a board is kept for the next follower: the next trigger, or the reader of the log's end."""


@asynccontextmanager
async def followed(config: ClusterConfig, ref: JobRef) -> AsyncIterator[World]:
    """Give the job's world, with all that is known; it is kept up to date meanwhile.

    Raises:
        ClusterError: the server refuses to let this be watched.
    """
    ours = Selection(config=config, kind=ref.kind, namespace=ref.namespace)
    selection = _selection_for(ours, ref.name)
    async with joined(selection, lambda: Board(selection), linger=_LINGER) as board, board.following(ref) as world:
        if world is not None:
            yield world
            return
    others = replace(ours, ours=False)
    async with joined(others, lambda: Board(others), linger=_LINGER) as board, board.following(ref) as world:
        yield world if world is not None else _world_without_job(ref)


def followed_world(config: ClusterConfig, ref: JobRef) -> World | None:
    """Return the job's world if somebody on this loop follows it and all is known; nothing is asked for."""
    ours = Selection(config=config, kind=ref.kind, namespace=ref.namespace)
    for selection in (replace(ours, name=ref.name), ours, replace(ours, ours=False)):
        board = opened(selection)
        world = board.world(ref) if isinstance(board, Board) else None
        if world is not None:
            return world
    return None


def _selection_for(ours: Selection, name: str) -> Selection:
    """Return how to follow a job: by its name as long as nobody follows another one there, else with all of ours."""
    alone = replace(ours, name=name)
    beside = [
        each
        for each in open_keys()
        if isinstance(each, Selection) and replace(each, name="", ours=True) == ours and each != alone
    ]
    return ours if beside else alone


def _world_without_job(ref: JobRef) -> World:
    world = World(ref)
    world.show_job(None)
    return world
