"""Informer for annotations of claims: one watch that all followers of an event loop share.

Reads only the claims' metadata. A single claim is watched by name, so that a Role may be limited to it; from the second
claim of a namespace on, that one and all later ones share a watch of them all.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ptjob_provider.core.backend import Claim
from ptjob_provider.core.hub import Mailbox, joined, open_keys
from ptjob_provider.core.kubernetes import paths
from ptjob_provider.core.kubernetes.board.watching import Gone, Mark, Present, Refused, Watch
from ptjob_provider.core.kubernetes.client import lease

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ptjob_provider.core.kubernetes.config import ClusterConfig

_LINGER = 10.0
"""Seconds that a watch stays open for the next follower."""


@dataclass(frozen=True, kw_only=True)
class ClaimSelection:
    """Scope of a watch; equal ones share it.

    Attributes:
        name: of the one claim; "" for all of the namespace.
    """

    config: ClusterConfig
    namespace: str
    name: str = ""

    @property
    def query(self) -> dict[str, str]:
        """Return the query that selects them."""
        return {"fieldSelector": f"metadata.name={self.name}"} if self.name else {}


class ClaimBoard:
    """Cache of the claims of a selection; a `hub.Source`."""

    def __init__(self, selection: ClaimSelection) -> None:
        self.box = Mailbox()
        self._selection = selection
        self._claims: dict[str, Claim] = {}
        self._is_complete = False

    async def run(self) -> None:
        """Update the cache until cancelled; see `hub.Source`."""
        selection, untold = self._selection, set[str]()
        async with lease(selection.config) as client:
            watch = Watch(client, paths.claims(selection.namespace), selection.query, metadata_only=True)
            async with aclosing(watch.news()) as news:
                async for each in news:
                    if isinstance(each, Present):
                        untold.discard(each.object["metadata"]["name"])
                        self._take(each)
                    elif isinstance(each, Gone):
                        self._lose(each.object["metadata"]["name"])
                    elif isinstance(each, Refused):
                        raise each.error
                    elif each is Mark.BEGIN:
                        untold = set(self._claims)
                    elif each is Mark.COMPLETE:
                        self._complete(untold)

    def fail(self, error: BaseException) -> None:
        """See `hub.Source`."""
        self.box.fail(error)

    async def states(self, name: str) -> AsyncGenerator[Claim | None, None]:
        """Yield one claim's states; see `Backend.watch_claim`."""
        await self.box.until(lambda: self._is_complete)
        while True:
            seen = self._claims.get(name)
            yield seen
            await self.box.until(lambda seen=seen: self._claims.get(name) != seen)  # type: ignore[misc]

    def _take(self, news: Present) -> None:
        meta = news.object["metadata"]
        self._claims[meta["name"]] = Claim(uid=meta["uid"], annotations=meta.get("annotations") or {})
        self.box.ring()

    def _lose(self, name: str) -> None:
        self._claims.pop(name, None)
        self.box.ring()

    def _complete(self, untold: set[str]) -> None:
        for name in untold:
            self._lose(name)
        self._is_complete = True
        self.box.ring()


async def watched_claim(config: ClusterConfig, namespace: str, name: str) -> AsyncGenerator[Claim | None, None]:
    """Yield the claim's states; see `Backend.watch_claim`.

    Raises:
        ClusterError: the server refuses the watch.
    """
    selection = _selection_for(ClaimSelection(config=config, namespace=namespace), name)
    async with (
        joined(selection, lambda: ClaimBoard(selection), linger=_LINGER) as board,
        aclosing(board.states(name)) as states,
    ):
        async for state in states:
            yield state


def _selection_for(whole: ClaimSelection, name: str) -> ClaimSelection:
    """Return the selection to watch: the claim by name while no other one there is watched, else all."""
    alone = replace(whole, name=name)
    beside = [
        each
        for each in open_keys()
        if isinstance(each, ClaimSelection) and replace(each, name="") == whole and each != alone
    ]
    return whole if beside else alone
