"""List a source again and again, check the arguments of arrival triggers, and store the watermark in Airflow."""

from __future__ import annotations

import asyncio
import enum
import hashlib
import json
import math
import random
import re
import time
from typing import TYPE_CHECKING, Any

from airflow.sdk.definitions.asset import AssetNameRef

from ptjob_provider.airflow.compat_triggers import SharedStreamProducer
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.retraining.batches import Watermark
from ptjob_provider.retraining.sources import DEEPEST
from ptjob_provider.retraining.troubles import SourceTrouble, Troubles, pause_after

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from ptjob_provider.retraining.batches import Listing

_URL = re.compile(r"(?!file:|local:|https?:)[a-z][a-z0-9+.-]*://[^/]+.*|(file|local):///.*")
_PASSWORD = re.compile(r":/{1,2}[^/@]*:[^/@]*@")
_SECRET = re.compile(r"secret|password|token|credential|(^|_)key$|sas|passphrase|connection_?str", re.IGNORECASE)


def source(value: Any) -> str:
    """Return the address as text, if it is an absolute path or a supported URL."""
    is_address = isinstance(value, str) or hasattr(value, "__fspath__") or hasattr(value, "protocol")
    address = str(value) if is_address else ""
    if _PASSWORD.search(address):
        raise InvalidSpec.at("source", "a password is not allowed; secrets belong in a connection: conn_id=…")
    if address.startswith("/") or _URL.fullmatch(address):
        return address
    allowed = "allowed: a directory's absolute path, or a URL such as 's3://bucket/incoming', without templates"
    if address.startswith(("http://", "https://")):
        allowed += "; a listing over http and https has no times and no etags, so that a rewritten file is never seen"
    raise InvalidSpec.of("source", value, allowed)


def storage_options(value: Any) -> dict[str, Any] | None:
    """Return the options; secrets are refused, because a DAG file's values are stored unencrypted."""
    if value is None:
        return None
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise InvalidSpec.of(
            "storage_options", type(value).__name__, "allowed: a dict of fsspec's options by their names"
        )
    for name in _names(value):
        if _SECRET.search(name):
            raise InvalidSpec(f"storage_options: {name!r} is not allowed; secrets belong in a connection: conn_id=…")
    try:
        json.dumps(value)
    except (TypeError, ValueError) as error:
        raise InvalidSpec(f"storage_options: only JSON values are allowed ({error})") from None
    return value


def marker(value: Any, batch: str) -> str | None:
    """Return the marker's name; None if each file is a batch, even for the default marker."""
    if batch == "file":
        if value not in {None, "_SUCCESS"}:
            raise InvalidSpec.of("marker", value, "a file has no marker, it settles; leave it out, or batch='folder'")
        return None
    if value is not None and (not isinstance(value, str) or not value or "/" in value):
        raise InvalidSpec.of("marker", value, "allowed: the name of a file in the batch's folder, or None")
    return value


def depth(value: Any, batch: str) -> int:
    """Return the number of folders in a batch's name."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if not is_number or not 1 <= value <= DEEPEST or (batch == "file" and value != 1):
        raise InvalidSpec.of("depth", value, f"allowed: 1 to {DEEPEST} folders; leave it out with batch='file'")
    return int(value)


def seconds(field: str, value: Any, *, least: float) -> float:
    """Return the value as a number of seconds, if it is at least `least`."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or value < least:
        raise InvalidSpec.of(field, value, f"allowed: seconds, {least:g} or more")
    return float(value)


def _names(options: dict[str, Any]) -> list[str]:
    """Return the names of all options, including nested ones."""
    names = []
    for name, value in options.items():
        names.append(str(name))
        if isinstance(value, dict):
            names.extend(_names(value))
    return names


_TIMEOUT = 30.0
"""Seconds for one request to the triggerer's parent process, which has access to Airflow's database."""


class KeptWatermark:
    """Watermark of one watcher: a few values of at most 64 KB, stored with each of its assets.

    Two watchers of one asset use different keys; one watcher of two assets (Airflow merges two that are equal) writes
    to both.

    Args:
        store: the store that Airflow gives the trigger. None: the watermark is not stored.
        identity: values that distinguish the watcher from others: its source and its rules for batches.
    """

    def __init__(self, store: Any, identity: Mapping[str, Any]) -> None:
        self._accessors = _accessors(store)
        text = json.dumps(identity, sort_keys=True)
        self._name = f"ptjob_arrival_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
        self._written: list[str] | None = None

    async def read(self) -> Watermark:
        """Return the batches that are recorded with every asset; errors of Airflow's store are raised unchanged."""
        stored = [await self._read(accessor) for accessor in self._accessors]
        if not stored:
            self._written = []
            return Watermark()
        common, *others = [Watermark.from_pages(pages) for pages in stored]
        for other in others:
            common = common.common(other)
        if not others:
            self._written = stored[0]
        return common

    async def write(self, watermark: Watermark) -> None:
        """Write the pages that have changed since the last read or write, and their number last."""
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
    names = sorted(store._by_name)  # noqa: SLF001 - a trigger has no other way to get its assets
    return [store[AssetNameRef(name)] for name in names]


CONFIRM = 1.0
"""Seconds between a listing that shows something new and the one that confirms it."""

_draw = random.SystemRandom().random


class Then(enum.Enum):
    """Next step after a listing of the source."""

    POLL = "when it is time again"
    CONFIRM = "soon, to see the same once more"
    MORE = "not at all: this listing has more to announce"


class Look:
    """One listing of a source, until its new batches are announced and recorded."""

    def __init__(self, listing: Listing) -> None:
        self.listing = listing
        self.then = Then.POLL
        self.keep: Callable[[], Awaitable[None]] | None = None
        """Set by the creator of the events; called once all of them are in Airflow's database."""
        self.is_queued = False
        """Set by the creator of the events once all of them were handed over.

        If a trigger is stopped at its last event, that event was not fired; Airflow counts the listing as done anyway.
        """
        self._over = asyncio.Event()

    async def conclude(self, *, is_taken: bool) -> None:
        """Complete the listing: record its announced batches, or announce them again if Airflow did not store them."""
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


_PATIENCE = 3
"""Listings without a complete batch before it is said what they have."""


class Watch:
    """Lists one source for as long as a consumer requests more; never raises, but logs trouble and waits.

    Args:
        look: lists the source, or raises SourceTrouble.
        source: the source's address, for log messages.
        poll_seconds: seconds between two listings.
        log: logger for trouble.
        sleep: waits for a number of seconds.
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
        self._in_vain = 0  # listings without a batch, and more than are counted once there was one

    async def looks(self) -> AsyncIterator[Look]:
        """Yield listings without end; each must be concluded before the next one begins.

        A batch that first appears in a confirming listing is confirmed by the next poll, so that a source with constant
        arrivals is listed twice per poll and not all the time.
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
            report = self._troubles.failed(trouble, time.monotonic())
            if report is not None:
                self._log.warning("%s", report)
            return None
        report = self._troubles.worked(time.monotonic())
        if report is not None:
            self._log.info("%s", report)
        self._log_oddities(listing)
        self._log_advice(listing)
        return listing

    def _log_advice(self, listing: Listing) -> None:
        """Log once what a source has whose first listings had no complete batch."""
        self._in_vain += 1 if listing.advice else _PATIENCE
        if listing.advice and self._in_vain == _PATIENCE:
            self._log.warning("%s: no batch so far: %s", self._source, listing.advice)

    def _log_oddities(self, listing: Listing) -> None:
        """Log each problem of a batch once, and once that it is repaired."""
        for name, text in listing.oddities.items():
            if self._odd.get(name) != text:
                self._log.warning("%s: nothing of %a is announced: %s", self._source, name, text)
        for name in self._odd.keys() - listing.oddities.keys():
            self._log.info("%s: nothing is wrong with %a any more", self._source, name)
        self._odd = dict(listing.oddities)


class Producer(SharedStreamProducer):
    """Offers the watch as a producer to Airflow, which calls `advance` when a listing's events are in its database."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    async def open_stream(self) -> AsyncIterator[tuple[Look, Look]]:
        """Yield each listing twice: for the trigger, and for this producer."""
        async for look in self._watch.looks():
            yield look, look

    async def advance(self, batch: Sequence[Any]) -> None:
        """Conclude listings as stored or not."""
        for item in batch:
            await item.broker_payload.conclude(is_taken=item.outcome.is_clean and item.broker_payload.is_queued)
