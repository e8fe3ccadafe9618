"""`ClaimArrivalTrigger`: create an asset event for each batch that a writer records on a PersistentVolumeClaim.

    incoming = Asset("digits-incoming", watchers=[AssetWatcher(name="arrivals", trigger=ClaimArrivalTrigger("digits"))])

For claims that no triggerer mounts. One watch of a namespace's claims serves all triggers of a triggerer. The trigger
never writes to a claim and never reads its files. Importing this module loads no client.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal

from ptjob_provider.airflow import arrival_arguments
from ptjob_provider.airflow.arrival_watch import Watch
from ptjob_provider.airflow.data_arrival import ArrivalTrigger
from ptjob_provider.airflow.reaching import DEFAULT_CONN_ID, Access
from ptjob_provider.core.arrival import BatchRules, Listing, SourceTrouble
from ptjob_provider.core.arrival.notes import NOTE, noted
from ptjob_provider.core.errors import PTJobError
from ptjob_provider.core.spec.volumes import claim_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.backend import Claim

_AGAIN = 20.0
"""Seconds after which an unchanged claim is reported again, from the cache and without a request.

Airflow may have dropped an event, or may not have returned what was announced before (observed on a busy machine).
"""


class ClaimArrivalTrigger(ArrivalTrigger):
    """Watches the annotations of a PersistentVolumeClaim for batches, for `AssetWatcher`.

    Each recorded batch creates at least one event, in the form of `DataArrivalTrigger`'s events, with the address
    `pvc://claim/path`. A batch is recorded in the annotation, or in one whose name continues it after a dot;
    `core.arrival.notes` defines the content. A batch of a claim that was deleted and created again is new. While an
    asset has this watcher, an unpaused DAG is scheduled on the asset and a triggerer runs, the claim is watched; the
    trigger waits for a missing claim.

    Args:
        claim: the claim's name.
        namespace: the claim's namespace. None: the connection's, else that of the triggerer's pod.
        kubernetes_conn_id: the connection to the cluster; ignored if jobs run on this machine.
        in_cluster: see `reaching.Access`, also for the next two.
        config_file: path of a kubeconfig on the triggerer.
        cluster_context: the kubeconfig's context.
        annotation: the annotation's name.
        events: "each": an event per batch. "together": one for all batches recorded by then, up to 200 in one.

    Raises:
        InvalidSpec: an argument is wrong.
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
        self.annotation = arrival_arguments.text("annotation", annotation)
        self.events = arrival_arguments.one_of("events", events, ("each", "together"))

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what a triggerer builds the same trigger from; JSON values only."""
        fields = {name: getattr(self, name) for name in ("claim", "namespace", "annotation", "events")}
        return f"{__name__}.{type(self).__name__}", {**fields, **Access.of(self).to_dict()}

    def rules(self) -> BatchRules:
        """Return the rules that define a batch: complete as soon as its writer records it."""
        return BatchRules(marker=None)

    def address(self) -> str:
        """Return the source's address for events."""
        return f"pvc://{self.claim}"

    def watch(self) -> Watch:
        """Return the watch of the claim; each look blocks until there is something to report."""
        return Watch(_Looking(self).look, source=self.address(), poll_seconds=0.0, log=self.log)

    def _identity(self) -> Mapping[str, Any]:
        return {"source": self.address(), "namespace": self.namespace, "annotation": self.annotation}


class _Looking:
    """Reads one claim's annotations for one trigger."""

    def __init__(self, trigger: ClaimArrivalTrigger) -> None:
        self._trigger = trigger
        self._last: Claim | None = None
        self._is_new = False
        self._is_missed = False

    async def look(self) -> Listing:
        """Return the recorded batches when they have changed, then once more, and again from time to time."""
        try:
            claim = await self._next()
        except PTJobError as error:
            raise SourceTrouble(str(error), str(error)) from error
        batches, wrong = noted(claim.annotations, note=self._trigger.annotation, claim=claim.uid)
        return Listing(began=time.monotonic(), batches=tuple(batches), oddities=wrong)

    async def _next(self) -> Claim:
        while True:
            place = await Access.of(self._trigger).async_place()
            namespace = self._trigger.namespace or place.namespace or "default"
            states = place.backend.watch_claim(namespace, self._trigger.claim)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_AGAIN), aclosing(states):
                    async for state in states:
                        if state is None:
                            self._miss(namespace)
                        elif self._is_told(state):
                            return state
            if self._last is not None:
                return self._last

    def _is_told(self, state: Claim) -> bool:
        """Return whether to report the state: a new state is reported twice."""
        is_new = state != self._last
        is_told = is_new or self._is_new
        self._last, self._is_new, self._is_missed = state, is_new, False
        return is_told

    def _miss(self, namespace: str) -> None:
        if not self._is_missed:
            where = f"{self._trigger.address()}: the namespace {namespace} has no claim of this name"
            self._trigger.log.warning("%s; it is waited for, and this is said once", where)
        self._last, self._is_missed = None, True
