"""Test of the watch of one claim; a scripted stand-in replaces the server."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest

from api_server_stand_in import stand_in_api_server
from ptjob_provider.core.errors import PermissionDenied
from ptjob_provider.core.kubernetes import KubernetesBackend

if TYPE_CHECKING:
    from ptjob_provider.core.backend import Claim

pytestmark = pytest.mark.skips_waits

FORBIDDEN = (403, {"kind": "Status", "code": 403, "message": "no"})


def claim(uid: str, version: int, note: str) -> dict[str, Any]:
    return {"metadata": {"uid": uid, "resourceVersion": str(version), "annotations": {"note": note}}}


def listed(*items: dict[str, Any], version: int) -> tuple[int, dict[str, Any]]:
    meta = {"resourceVersion": str(version)}
    return 200, {"kind": "PersistentVolumeClaimList", "apiVersion": "v1", "metadata": meta, "items": list(items)}


def watched(*events: tuple[str, dict[str, Any]]) -> tuple[int, str]:
    return 200, "".join(json.dumps({"type": kind, "object": each}) + "\n" for kind, each in events)


async def follow(backend: KubernetesBackend, states: list[Claim | None]) -> None:
    async with aclosing(backend.watch_claim("team", "data")) as watch:
        async for state in watch:
            states.append(state)  # noqa: PERF401 - the states before an error count


async def test_each_state_of_a_claim_is_told_once_until_it_may_not_be_watched() -> None:
    """A change of something else is none; a claim that was made anew while nobody watched has another uid."""
    first, forgotten = claim("1", 5, "a"), ("ERROR", {"kind": "Status", "code": 410, "message": "too old"})
    script = (
        listed(version=3),
        watched(("ADDED", first), ("MODIFIED", claim("1", 6, "a")), ("MODIFIED", claim("1", 7, "b")), forgotten),
        listed(claim("2", 8, "b"), version=8),
        watched(("DELETED", claim("2", 9, "b"))),
        FORBIDDEN,
    )
    states: list[Claim | None] = []
    async with stand_in_api_server(*script) as server:
        with pytest.raises(PermissionDenied):
            await follow(KubernetesBackend(server.config()), states)
        requested = server.requests[0]

    notes = [state and (state.uid, state.annotations["note"]) for state in states]
    assert notes == [None, ("1", "a"), ("1", "b"), ("2", "b"), None]
    assert "fieldSelector=metadata.name%3Ddata" in requested
