"""Watch a claim by its name, so that a Role may be limited to this claim; all subscribers of a loop share the watch."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from ptjob_provider.core.backend import Claim
from ptjob_provider.core.kubernetes.client import paths
from ptjob_provider.core.kubernetes.client.http import shared_client
from ptjob_provider.core.kubernetes.informer.reflector import Applied, Deleted, Reflector, RequestRefused, Synced
from ptjob_provider.core.shared import Notifier, shared_source

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ptjob_provider.core.kubernetes.config import ClusterConfig
    from ptjob_provider.core.kubernetes.informer.reflector import Event

_LINGER = 10.0
"""Seconds for which a watch without subscribers stays open for the next one."""


async def watched_claim(config: ClusterConfig, namespace: str, name: str) -> AsyncGenerator[Claim | None, None]:
    """Yield the claim's state after each change; see `Backend.watch_claim`.

    Raises:
        ClusterError: the server refuses the watch.
    """
    key = (_ClaimInformer, config, namespace, name)
    async with shared_source(key, lambda: _ClaimInformer(config, namespace, name), linger=_LINGER) as informer:
        await informer.notifier.until(lambda: informer.is_synced)
        while True:
            state = informer.claim
            yield state
            await informer.notifier.until(lambda state=state: informer.claim != state)  # type: ignore[misc]


class _ClaimInformer:
    """Watches and caches one claim; a `shared.ChangeSource`."""

    def __init__(self, config: ClusterConfig, namespace: str, name: str) -> None:
        self.notifier = Notifier()
        self.claim: Claim | None = None
        self.is_synced = False
        self._config = config
        self._path = paths.claims(namespace)
        self._selector = {"fieldSelector": f"metadata.name={name}"}

    async def run(self) -> None:
        """Update the cache until cancelled; see `shared.ChangeSource`."""
        async with shared_client(self._config) as client:
            reflector = Reflector(
                client, self._path, self._selector, known=lambda: [self.claim.uid] if self.claim else []
            )
            async with aclosing(reflector.events()) as events:
                async for event in events:
                    self._handle(event)

    def fail(self, error: BaseException) -> None:
        """See `shared.ChangeSource`."""
        self.notifier.fail(error)

    def _handle(self, event: Event) -> None:
        match event:
            case Applied(claim):
                meta = claim["metadata"]
                self.claim = Claim(uid=meta["uid"], annotations=meta.get("annotations") or {})
            case Deleted():
                self.claim = None
            case RequestRefused(error):
                raise error
            case Synced(missing):
                if self.claim is not None and self.claim.uid in missing:
                    self.claim = None
                self.is_synced = True
        self.notifier.notify()
