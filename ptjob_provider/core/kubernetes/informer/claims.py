"""Watch a claim by its name, so that a Role may be limited to this claim."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from ptjob_provider.core.backend import Claim
from ptjob_provider.core.kubernetes.client import paths
from ptjob_provider.core.kubernetes.client.http import shared_client
from ptjob_provider.core.kubernetes.informer.reflector import Applied, Deleted, Reflector, RequestRefused, Synced

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ptjob_provider.core.kubernetes.config import ClusterConfig


async def watched_claim(config: ClusterConfig, namespace: str, name: str) -> AsyncGenerator[Claim | None, None]:
    """Yield the claim's state after each change; see `Backend.watch_claim`.

    Raises:
        ClusterError: the server refuses the watch.
    """
    claim: Claim | None = None
    told: object = ()  # the first state is told, too, even if there is no claim
    async with shared_client(config) as client:
        selector = {"fieldSelector": f"metadata.name={name}"}
        reflector = Reflector(client, paths.claims(namespace), selector, known=lambda: [claim.uid] if claim else [])
        async with aclosing(reflector.events()) as events:
            async for event in events:
                match event:
                    case Applied(found):
                        meta = found["metadata"]
                        claim = Claim(uid=meta["uid"], annotations=meta.get("annotations") or {})
                    case Deleted():
                        claim = None
                    case Synced(missing) if claim is not None and claim.uid in missing:
                        claim = None
                    case RequestRefused(error):
                        raise error
                if claim != told:
                    told = claim
                    yield claim
