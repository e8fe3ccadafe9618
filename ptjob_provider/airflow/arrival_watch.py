"""Loop of a watcher: lists a source repeatedly, and tracks whether its events were stored."""

from __future__ import annotations

import asyncio
import enum
import random
import time
from typing import TYPE_CHECKING, Any

from airflow.triggers.shared_stream import SharedStreamProducer

from ptjob_provider.core.arrival import SourceTrouble, Troubles, pause_after

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from airflow.triggers.shared_stream import AdvanceItem

    from ptjob_provider.core.arrival import Listing

CONFIRM = 1.0
"""Seconds between a listing that shows something new and the one that confirms it."""

_draw = random.SystemRandom().random


class Then(enum.Enum):
    """The next listing of the source."""

    POLL = "when it is time again"
    CONFIRM = "soon, to see the same once more"
    MORE = "not at all: this listing has more to announce"


class Look:
    """One listing, on its way from the source to the event and from the event to the watermark."""

    def __init__(self, listing: Listing) -> None:
        self.listing = listing
        self.then = Then.POLL
        self.keep: Callable[[], Awaitable[None]] | None = None
        """Set by the creator of the events: called once all of them are in Airflow's database."""
        self.is_queued = False
        """Set by the creator once all events were handed over.

        A trigger that is stopped at the last event has not fired it, although Airflow counts the listing as done.
        """
        self._over = asyncio.Event()

    async def conclude(self, *, is_taken: bool) -> None:
        """Continue: record what was announced, or announce it again if it was not stored."""
        try:
            if is_taken and self.keep is not None:
                await self.keep()
            elif not is_taken:
                self.then = Then.POLL
        finally:
            self._over.set()

    async def wait(self) -> None:
        """Return when the listing is concluded."""
        await self._over.wait()


class Watch:
    """Lists one source for as long as a consumer requests more; never raises, but logs trouble and waits.

    Args:
        look: lists the source, or raises SourceTrouble.
        source: its address, for people.
        poll_seconds: seconds between two listings.
        log: logger for trouble.
        sleep: how to wait.
    """

    def __init__(
        self,
        look: Callable[[], Awaitable[Listing]],
        *,
        source: str,
        poll_seconds: float,
        log: Any,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        self._look = look
        self._source = source
        self._poll_seconds = poll_seconds
        self._log = log
        self._sleep = sleep
        self._troubles = Troubles(source)
        self._odd: dict[str, str] = {}

    async def looks(self) -> AsyncIterator[Look]:
        """Yield listings without end; each must be concluded before the next is made.

        What a confirming listing shows for the first time is confirmed by the next poll, so that a source with constant
        arrivals is listed twice per poll and not without end.
        """
        is_confirming = False
        while True:
            listing = await self._listing()
            then = Then.POLL
            while listing is not None:
                look = Look(listing)
                yield look
                await look.wait()
                then = look.then
                if then is not Then.MORE:
                    break
            is_confirming = then is Then.CONFIRM and not is_confirming
            pause = pause_after(self._troubles.failures, self._poll_seconds, _draw())
            await self._sleep(min(CONFIRM, pause) if is_confirming else pause)

    async def _listing(self) -> Listing | None:
        try:
            listing = await self._look()
        except SourceTrouble as trouble:
            said = self._troubles.failed(trouble, time.monotonic())
            if said is not None:
                self._log.warning("%s", said)
            return None
        said = self._troubles.worked(time.monotonic())
        if said is not None:
            self._log.info("%s", said)
        self._say_oddities(listing)
        return listing

    def _say_oddities(self, listing: Listing) -> None:
        """Log once per batch what is wrong with it, and that it was repaired."""
        for name, text in listing.oddities.items():
            if self._odd.get(name) != text:
                self._log.warning("%s: the batch %a is not announced: %s", self._source, name, text)
        for name in self._odd.keys() - listing.oddities.keys():
            self._log.info("%s: nothing is wrong with the batch %a any more", self._source, name)
        self._odd = dict(listing.oddities)


class Producer(SharedStreamProducer):
    """The watch as a producer for Airflow, which calls `advance` when a listing's events are in its database."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    async def open_stream(self) -> AsyncIterator[tuple[Look, Look]]:
        """Yield each listing twice: for the trigger, and for this producer."""
        async for look in self._watch.looks():
            yield look, look

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Conclude listings as stored or not."""
        for item in batch:
            await item.broker_payload.conclude(is_taken=item.outcome.is_clean and item.broker_payload.is_queued)
