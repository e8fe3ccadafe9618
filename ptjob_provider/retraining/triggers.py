"""Create an asset event for each batch of training data that arrives in a store or is announced on a claim.

    incoming = Asset(
        "digits-incoming",
        watchers=[AssetWatcher(name="arrivals", trigger=DataArrivalTrigger("s3://bucket/incoming", conn_id="store"))],
    )

For a claim that no triggerer mounts:

    incoming = Asset("digits-incoming", watchers=[AssetWatcher(name="arrivals", trigger=ClaimArrivalTrigger("digits"))])

One watch of a namespace's claims serves all triggers of a triggerer. `ClaimArrivalTrigger` never writes to a claim and
never reads its files. Importing this module loads no file system and no client.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from ptjob_provider.airflow import compat
from ptjob_provider.airflow.connection import DEFAULT_CONN_ID, ConnectionArgs
from ptjob_provider.core.errors import PTJobError
from ptjob_provider.core.outgoing import outgoing
from ptjob_provider.core.spec.parsers import text, word
from ptjob_provider.core.spec.pods import claim_name
from ptjob_provider.retraining import watcher
from ptjob_provider.retraining.batches import MARKER, MOST_BATCHES, Arrivals, BatchRules, Listing, payloads
from ptjob_provider.retraining.notes import NOTE, noted
from ptjob_provider.retraining.sources import Source, Store, Threads
from ptjob_provider.retraining.troubles import SourceTrouble, trouble_of
from ptjob_provider.retraining.watcher import KeptWatermark, Look, Producer, Then, Watch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from ptjob_provider.core.backend import Claim
    from ptjob_provider.retraining.batches import ArrivedBatch

LOOK_TIMEOUT = 300.0
"""Seconds for one listing of a whole source."""

AFTER_A_FAILURE = 30.0
"""Seconds before a watcher is started again after an unexpected failure."""

FAILED = "%s: the watcher failed by itself and begins anew; nothing is lost"

PORTION = {"each": 100, "together": 5 * MOST_BATCHES}
"""Maximum batches announced at once, because a triggerer stores events one by one and does nothing else meanwhile."""


class ArrivalTrigger(BaseEventTrigger):
    """Base class of the triggers that announce batches: at least one event per batch, and a stored watermark.

    A batch is recorded as announced only after Airflow has confirmed that its event is in the database. It confirms
    only events of shared streams, so each trigger uses one. If a triggerer dies in between, the batch is announced
    again with the same id.
    """

    events: str
    settle_seconds: float

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._arrivals: Arrivals | None = None
        self._kept: KeptWatermark | None = None
        self._logged_trouble: str | None = None

    def rules(self) -> BatchRules:
        """Return the rules that define a batch."""
        raise NotImplementedError

    def address(self) -> str:
        """Return the source's address for events."""
        raise NotImplementedError

    def watch(self) -> Watch:
        """Return the watch of the source."""
        raise NotImplementedError

    def shared_stream_key(self) -> str:
        """Return the key of a stream of this trigger alone; Airflow confirms only the events of shared streams."""
        classpath, kwargs = self.serialize()
        return f"{classpath} {json.dumps(kwargs, sort_keys=True)}"

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> Producer:
        """Return the stream's producer, which Airflow calls."""
        return Producer(cls(**kwargs).watch())

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Look]) -> AsyncIterator[TriggerEvent]:
        """Yield events for the new batches of each listing; a batch is recorded once Airflow has stored its event."""
        try:
            async for look in shared_stream:
                for event in await self._announce(look):
                    yield event
                look.is_queued = True
        except Exception:
            self.log.exception(FAILED, self.address())
            await asyncio.sleep(AFTER_A_FAILURE)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield the same events without confirmations: an event counts as stored when the next one is requested."""
        while True:
            try:
                async for look in self.watch().looks():
                    for event in await self._announce(look):
                        yield event
                    await look.conclude(is_taken=True)
            except Exception:
                self.log.exception(FAILED, self.address())
                await asyncio.sleep(AFTER_A_FAILURE)

    async def _announce(self, look: Look) -> Sequence[TriggerEvent]:
        arrivals = await self._read_arrivals()
        if arrivals is None:
            return []
        ready = arrivals.ready(look.listing)
        portion = ready[: PORTION[self.events]]
        if portion:
            found = (len(portion), len(ready), portion[0].id, portion[-1].id)
            self.log.info("%s: announcing %d of %d batches that have arrived, %s to %s", self.address(), *found)
        look.keep = partial(self._keep, portion, look.listing)
        if len(ready) > len(portion):
            look.then = Then.MORE
        elif arrivals.needs_confirmation(look.listing):
            look.then = Then.CONFIRM
        events = payloads(self.address(), portion, together=self.events == "together")
        return [TriggerEvent(outgoing(each)) for each in events]  # type: ignore[no-untyped-call]

    async def _read_arrivals(self) -> Arrivals | None:
        """Return the batches announced before; None if Airflow cannot be read: no batch is announced then."""
        if self._arrivals is None:
            kept = KeptWatermark(compat.asset_state(self), self._identity())
            try:
                watermark = await kept.read()
            except Exception as error:  # noqa: BLE001 - after any error, the next listing tries again
                self._log_once(
                    f"what was announced before cannot be read from Airflow ({type(error).__name__}: {error})"
                )
                return None
            self._log_once(None)
            self._kept = kept
            self._arrivals = Arrivals(self.rules(), settle_seconds=self.settle_seconds, watermark=watermark)
        return self._arrivals

    async def _keep(self, portion: Sequence[ArrivedBatch], listing: Listing) -> None:
        """Record these batches as announced; after a failed write, a later listing writes the record."""
        arrivals, kept = self._arrivals, self._kept
        if arrivals is None or kept is None:
            return
        arrivals.take(portion)
        arrivals.sweep(listing)
        try:
            await kept.write(arrivals.watermark)
        except Exception as error:  # noqa: BLE001 - after any error, a later listing tries again
            self._log_once(f"what was announced cannot be written to Airflow ({type(error).__name__}: {error})")
        else:
            self._log_once(None)

    def _identity(self) -> Mapping[str, Any]:
        rules = self.rules()
        known = {"source": self.address(), "batch": rules.batch, "pattern": rules.pattern, "marker": rules.marker}
        return known if rules.depth == 1 else {**known, "depth": rules.depth}

    def _log_once(self, trouble: str | None) -> None:
        """Log that Airflow's store has trouble, or with None that it works again, each once."""
        if trouble is not None and self._logged_trouble is None:
            self.log.warning(
                "%s: %s. It is tried again; after a restart events may come twice", self.address(), trouble
            )
        if trouble is None and self._logged_trouble is not None:
            self.log.info("%s: Airflow's store for assets answers again", self.address())
        self._logged_trouble = trouble


class DataArrivalTrigger(ArrivalTrigger):
    """Watches a directory or an object store for batches of data, for `AssetWatcher`.

    Each complete batch creates at least one event; the same content has the same id in every triggerer and after every
    restart. The trigger changes nothing in the source. While an asset has this watcher, an unpaused DAG is scheduled on
    the asset and a triggerer runs, the source is listed every `poll_seconds`, and once more soon after a listing that
    contains a new batch. The payload is `{"source", "version", "batches": [{"id", "uri", "files", "bytes",
    "modified"}], "files", "bytes"}`.

    Args:
        source: a directory's absolute path, a URL of a scheme that fsspec knows, or an `ObjectStoragePath`.
        conn_id: Airflow's connection to the store, as for `ObjectStoragePath`.
        storage_options: further options of fsspec's file system; no secrets, because they are part of the DAG.
        batch: "folder": each folder right below the source, see `depth`, is a batch with all its content. "file": each
            file is one.
        pattern: glob that the batches' names must match.
        marker: name of the file that marks its folder as complete; its content is ignored. None: a batch is complete
            when it has settled.
        depth: number of folders in a batch's name, for nested and partitioned layouts: 3 for `2026/11/27`.
        settle_seconds: seconds for which a batch without a marker, or one that was rewritten, must be unchanged.
        poll_seconds: seconds between two listings; at least 1.
        events: "each": an event per batch. "together": one for all batches of a listing, up to 200 in one.

    Raises:
        InvalidSpec: an argument is invalid.
    """

    def __init__(
        self,
        source: Any,
        *,
        conn_id: str | None = None,
        storage_options: dict[str, Any] | None = None,
        batch: Literal["folder", "file"] = "folder",
        pattern: str = "*",
        marker: str | None = MARKER,
        depth: int = 1,
        settle_seconds: float = 60.0,
        poll_seconds: float = 60.0,
        events: Literal["each", "together"] = "each",
    ) -> None:
        super().__init__()
        self.source = watcher.source(source)
        given = getattr(source, "conn_id", None) if conn_id is None else conn_id
        self.conn_id = None if given is None else text("conn_id", given)
        self.storage_options = watcher.storage_options(storage_options)
        self.batch = word("folder", "file")("batch", batch)
        self.pattern = text("pattern", pattern)
        self.marker = watcher.marker(marker, self.batch)
        self.depth = watcher.depth(depth, self.batch)
        self.settle_seconds = watcher.seconds("settle_seconds", settle_seconds, least=0.0)
        self.poll_seconds = watcher.seconds("poll_seconds", poll_seconds, least=1.0)
        self.events = word(*PORTION)("events", events)
        self._place = Source(address=self.source, conn_id=self.conn_id, storage_options=self.storage_options or {})

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments from which a triggerer creates this trigger; JSON values only."""
        names = ("source", "conn_id", "storage_options", "batch", "pattern", "marker", "depth")
        times = ("settle_seconds", "poll_seconds", "events")
        return f"{__name__}.{type(self).__name__}", {name: getattr(self, name) for name in (*names, *times)}

    def rules(self) -> BatchRules:
        """Return the rules that define a batch."""
        kind: Any = self.batch
        return BatchRules(batch=kind, pattern=self.pattern, marker=self.marker, depth=self.depth)

    def address(self) -> str:
        """Return the source's address for events."""
        return self._place.url

    def watch(self) -> Watch:
        """Return the watch of the source."""
        store = Store(self._place, self.rules())
        look = partial(_look, store, Threads("ptjob-arrival"))
        return Watch(look, source=self.address(), poll_seconds=self.poll_seconds, log=self.log)


async def _look(store: Store, threads: Threads) -> Listing:
    try:
        return await threads.call(store.look, within=LOOK_TIMEOUT)
    except Exception as error:
        store.drop_client()
        raise trouble_of(error) from error


_AGAIN = 20.0
"""Seconds after which an unchanged claim is reported again, from the cache and without a request.

Airflow may have dropped an event, or may have failed to return the announced batches (observed on a busy machine).
"""


class ClaimArrivalTrigger(ArrivalTrigger):
    """Watches the annotations of a PersistentVolumeClaim for batches, for `AssetWatcher`.

    Each recorded batch creates at least one event, in the form of `DataArrivalTrigger`'s events, with the address
    `pvc://claim/path`. A batch is recorded in the annotation, or in one whose name adds a dot and a suffix to it;
    `retraining.notes` defines the content. A batch of a claim that was deleted and created again is new. While an
    asset has this watcher, an unpaused DAG is scheduled on the asset and a triggerer runs, the claim is watched; the
    trigger waits for a missing claim.

    Args:
        claim: the claim's name.
        namespace: the claim's namespace. None: the connection's, else that of the triggerer's pod.
        kubernetes_conn_id: the connection to the cluster; ignored if jobs run on this machine. None: no connection, as
            for a triggerer in the claim's own cluster.
        in_cluster: whether to use the service account of the triggerer's pod. None: the connection's value, as for the
            next two.
        config_file: path of a kubeconfig on the triggerer.
        cluster_context: the kubeconfig's context.
        annotation: the annotation's name.
        events: "each": an event per batch. "together": one for all batches recorded by then, up to 200 in one.

    Raises:
        InvalidSpec: an argument is invalid.
    """

    settle_seconds = 0.0

    def __init__(
        self,
        claim: str,
        *,
        namespace: str | None = None,
        kubernetes_conn_id: str | None = DEFAULT_CONN_ID,
        in_cluster: bool | None = None,
        config_file: str | None = None,
        cluster_context: str | None = None,
        annotation: str = NOTE,
        events: Literal["each", "together"] = "each",
    ) -> None:
        super().__init__()
        self.claim = claim_name("claim", claim)
        self.namespace = namespace
        self.kubernetes_conn_id = kubernetes_conn_id
        self.in_cluster = in_cluster
        self.config_file = config_file
        self.cluster_context = cluster_context
        self.annotation = text("annotation", annotation)
        self.events = word(*PORTION)("events", events)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments from which a triggerer creates this trigger; JSON values only."""
        fields = {name: getattr(self, name) for name in ("claim", "namespace", "annotation", "events")}
        return f"{__name__}.{type(self).__name__}", {**fields, **ConnectionArgs.of(self).to_dict()}

    def rules(self) -> BatchRules:
        """Return the rules that define a batch: complete as soon as its writer records it."""
        return BatchRules(marker=None)

    def address(self) -> str:
        """Return the source's address for events."""
        return f"pvc://{self.claim}"

    def watch(self) -> Watch:
        """Return the watch of the claim; each look blocks until there is something to report."""
        return Watch(_ClaimReader(self).look, source=self.address(), poll_seconds=0.0, log=self.log)

    def _identity(self) -> Mapping[str, Any]:
        return {"source": self.address(), "namespace": self.namespace, "annotation": self.annotation}


class _ClaimReader:
    """Reads one claim's annotations for one trigger."""

    def __init__(self, trigger: ClaimArrivalTrigger) -> None:
        self._trigger = trigger
        self._last: Claim | None = None
        self._is_new = False
        self._is_missed = False

    async def look(self) -> Listing:
        """Wait for a change or for `_AGAIN` seconds, and return the recorded batches; each change is returned twice."""
        try:
            claim = await self._next()
        except PTJobError as error:
            raise SourceTrouble(str(error), str(error)) from error
        batches, problems = noted(claim.annotations, note=self._trigger.annotation, claim=claim.uid)
        return Listing(began=time.monotonic(), batches=tuple(batches), oddities=problems)

    async def _next(self) -> Claim:
        while True:
            connection = await ConnectionArgs.of(self._trigger).async_resolve()
            namespace = self._trigger.namespace or connection.namespace or "default"
            states = connection.backend.watch_claim(namespace, self._trigger.claim)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_AGAIN), aclosing(states):
                    async for state in states:
                        if state is None:
                            self._log_missing(namespace)
                        elif self._is_due(state):
                            return state
            if self._last is not None:
                return self._last

    def _is_due(self, state: Claim) -> bool:
        """Return whether to report the state: a new state is reported twice."""
        is_new = state != self._last
        is_due = is_new or self._is_new
        self._last, self._is_new, self._is_missed = state, is_new, False
        return is_due

    def _log_missing(self, namespace: str) -> None:
        if not self._is_missed:
            where = f"{self._trigger.address()}: the namespace {namespace} has no claim of this name"
            self._trigger.log.warning("%s; waiting for it; this is logged once", where)
        self._last, self._is_missed = None, True
