"""Choose the cheapest informer for a follower: one for its job alone, or the shared one."""

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
"""Seconds that an informer stays open for the next follower: the next trigger, or the reader of the log's end."""


@asynccontextmanager
async def followed(config: ClusterConfig, ref: JobRef) -> AsyncIterator[World]:
    """Subscribe to the job's world; its state is complete on entry and kept up to date.

    Raises:
        ClusterError: the server refuses the watch.
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
    """Return the job's world if it is followed on this loop and complete; makes no request."""
    ours = Selection(config=config, kind=ref.kind, namespace=ref.namespace)
    for selection in (replace(ours, name=ref.name), ours, replace(ours, ours=False)):
        board = opened(selection)
        world = board.world(ref) if isinstance(board, Board) else None
        if world is not None:
            return world
    return None


def _selection_for(ours: Selection, name: str) -> Selection:
    """Return the selection to watch: the job by name while no other one there is followed, else all of ours."""
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
