"""Tests of the watch of one claim; a scripted stand-in replaces the server."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from api_server_stand_in import STALLED, stand_in_api_server
from ptjob_provider.core.errors import PermissionDenied
from ptjob_provider.core.kubernetes import KubernetesBackend

if TYPE_CHECKING:
    from ptjob_provider.core.backend import Claim

pytestmark = pytest.mark.skips_waits

META = {"uid": "1", "resourceVersion": "5", "annotations": {"note": "a"}}
LISTED = {
    "kind": "PersistentVolumeClaimList",
    "apiVersion": "v1",
    "metadata": {"resourceVersion": "5"},
    "items": [{"metadata": META}],
}


async def first_state(backend: KubernetesBackend) -> Claim | None:
    async with aclosing(backend.watch_claim("team", "data")) as watch:
        return await anext(watch)


async def test_looks_at_a_claim_one_after_the_other_share_its_watch() -> None:
    """A trigger looks every few seconds, and the server's pauses hold between its looks, too."""
    async with stand_in_api_server((200, LISTED), STALLED) as server:
        backend = KubernetesBackend(server.config())
        states = [await first_state(backend) for _ in range(3)]
        requested = server.requests

    assert [state and (state.uid, state.annotations["note"]) for state in states] == [("1", "a")] * 3
    assert len([line for line in requested if "watch=true" not in line]) == 1
    assert "fieldSelector=metadata.name%3Ddata" in requested[0]


async def test_a_claim_that_is_made_anew_under_its_name_is_another_claim() -> None:
    """Its batches are new ones, so the uid is told; between the two there is no claim."""
    deleted = {"type": "DELETED", "object": {"metadata": META | {"resourceVersion": "6"}}}
    made_anew = {"type": "ADDED", "object": {"metadata": META | {"uid": "2", "resourceVersion": "7"}}}
    events = "".join(f"{json.dumps(event)}\n" for event in (deleted, made_anew))
    async with (
        stand_in_api_server((200, LISTED), (200, events), STALLED) as server,
        aclosing(KubernetesBackend(server.config()).watch_claim("team", "data")) as watch,
    ):
        uids: list[str | None] = []
        async for state in watch:
            uids.append(state.uid if state else None)
            if uids[-1] == "2":
                break

    assert uids[0] == "1"
    assert set(uids) <= {"1", None, "2"}


async def test_a_claim_that_may_not_be_watched_is_refused() -> None:
    refusal = (403, {"kind": "Status", "code": 403, "message": "no"})
    async with stand_in_api_server(refusal) as server:
        with pytest.raises(PermissionDenied):
            await first_state(KubernetesBackend(server.config()))
