"""Tests of events from annotations on a claim: with stand-ins of claims and Airflow's own trigger runner."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from airflow_adapter.stand_ins import until
from airflow_adapter.triggerer import INCOMING, StandInStore, Triggerer
from airflow_versions import since
from ptjob_provider.airflow.connection import ConnectionArgs, ResolvedConnection
from ptjob_provider.core.backend import Claim
from ptjob_provider.core.errors import InvalidSpec, PermissionDenied
from ptjob_provider.retraining import triggers, watcher
from ptjob_provider.retraining.batches import Watermark
from ptjob_provider.retraining.triggers import ClaimArrivalTrigger

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

pytestmark = since(3, 3, "shared streams and a state store of the asset")

NOTE = "ptjob.dev/arrived"


class StandInClaims:
    """Fake back-end whose claims have the annotations that a test notes on them; without a note there is no claim.

    Attributes:
        refusals: the errors of the next watches.
    """

    def __init__(self) -> None:
        self.annotations: dict[str, dict[str, str]] = {}
        self.refusals: list[Exception] = []

    def note(self, claim: str = "digits", **notes: Any) -> None:
        """Replace all annotations: `_` is the plain key, any other name is appended to the key."""
        texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in notes.items()}
        self.annotations[claim] = {NOTE if name == "_" else f"{NOTE}.{name}": text for name, text in texts.items()}

    async def watch_claim(self, namespace: str, name: str) -> AsyncGenerator[Claim | None, None]:
        """Yield the claim after each change."""
        if self.refusals:
            raise self.refusals.pop(0)
        last: dict[str, str] | None = {}
        while True:
            if (now := self.annotations.get(name)) is not last:
                last = now
                yield None if now is None else Claim(uid="", annotations=now)
            await asyncio.sleep(0.02)


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> StandInClaims:
    """Return the claims that every trigger watches."""
    found = StandInClaims()

    async def place(access: ConnectionArgs) -> ResolvedConnection:
        return ResolvedConnection(backend=found, namespace="team", args=access)  # type: ignore[arg-type]

    # Airflow builds triggers from JSON, so no argument can pass a back-end.
    monkeypatch.setattr(ConnectionArgs, "async_resolve", place)
    return found


def watched(claim: str = "digits", store: StandInStore | None = None, **arguments: Any) -> Triggerer:
    return Triggerer(ClaimArrivalTrigger(claim, **arguments), store or StandInStore())


def uris(triggerer: Triggerer) -> list[list[str]]:
    """Return the addresses of the batches of each event."""
    return [[batch["uri"] for batch in event["batches"]] for event in triggerer.events]


def stored(store: StandInStore) -> int:
    """Return the number of batches in the watermark."""
    return len(Watermark.from_pages([*store[INCOMING].values.values()]))


def test_another_triggerer_builds_the_same_trigger() -> None:
    trigger = ClaimArrivalTrigger("digits", namespace="team", annotation="example.org/new", events="together")

    path, fields = trigger.serialize()
    again = ClaimArrivalTrigger(**json.loads(json.dumps(fields)))

    assert path == "ptjob_provider.retraining.triggers.ClaimArrivalTrigger"
    assert again.serialize() == (path, fields)


@pytest.mark.parametrize("wrong", [{"claim": "Digits/1"}, {"events": "all"}])
def test_a_wrong_argument_is_refused_where_it_is_written(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec, match=next(iter(wrong))):
        ClaimArrivalTrigger(**{"claim": "digits", **wrong})


async def test_each_batch_noted_on_a_claim_is_announced_once(claims: StandInClaims) -> None:
    claims.note(a={"path": "incoming/a", "files": 2, "bytes": 10})
    store = StandInStore()
    async with watched(store=store).running() as triggerer:
        await triggerer.until(1)
        claims.note(a={"path": "incoming/a", "files": 2, "bytes": 10}, b="incoming/b")
        await triggerer.until(2)
        await until(lambda: stored(store) == 2)
        await asyncio.sleep(0.1)

    payload = triggerer.events[0]
    assert uris(triggerer) == [["pvc://digits/incoming/a"], ["pvc://digits/incoming/b"]]
    assert set(payload) == {"source", "version", "batches", "files", "bytes"}
    assert (payload["source"], payload["files"], payload["bytes"]) == ("pvc://digits", 2, 10)
    assert payload["version"] == payload["batches"][0]["id"]


async def test_batches_noted_at_once_can_be_announced_in_one_event(claims: StandInClaims) -> None:
    claims.note(**{f"n{number:04d}": f"batch-{number:04d}" for number in range(250)})
    async with watched(events="together").running() as triggerer:
        await triggerer.until(250)

    assert [len(each) for each in uris(triggerer)] == [200, 50]


async def test_an_event_that_airflow_did_not_take_is_sent_again(
    claims: StandInClaims, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triggers, "_AGAIN", 0.2)  # 20 s in production
    monkeypatch.setattr(watcher.Look, "conclude", _not_taken_once(watcher.Look.conclude))
    claims.note(a="a")
    async with watched().running() as triggerer:
        await triggerer.until(2)

    first, second = triggerer.events
    assert first == second


def _not_taken_once(conclude: Any) -> Any:
    """Return a `conclude` that reports the first event as not taken, as Airflow does after five minutes."""
    taken = iter([False])

    async def concluded(look: watcher.Look, *, is_taken: bool) -> None:
        has_events = bool(look.keep and look.keep.args[0])  # type: ignore[attr-defined]
        await conclude(look, is_taken=next(taken, is_taken) if has_events else is_taken)

    return concluded


async def test_a_wrong_note_is_said_once_and_keeps_nothing_up(
    claims: StandInClaims, capsys: pytest.CaptureFixture[str]
) -> None:
    claims.note(a="/a", b="b")
    async with watched().running() as triggerer:
        await triggerer.until(1)
        claims.note(a="/a", b="b", c="c")
        await triggerer.until(2)
        claims.note(a="a", b="b", c="c")
        await triggerer.until(3)

    assert uris(triggerer) == [["pvc://digits/b"], ["pvc://digits/c"], ["pvc://digits/a"]]
    log = capsys.readouterr().out
    said = [line for line in log.splitlines() if "is not allowed" in line]
    assert len(said) == 1
    assert all(word in said[0] for word in ("pvc://digits", f"{NOTE}.a", "'/a'", "allowed: a path below the claim"))
    assert log.count("nothing is wrong with") == 1


async def test_two_watched_claims_of_one_asset_do_not_share_a_watermark(claims: StandInClaims) -> None:
    """The asset has one store; each claim has its own keys in it."""
    claims.note(a="a")
    claims.note("more", a="a")
    store = StandInStore()
    async with watched(store=store).running() as triggerer:
        await triggerer.until(1)
        await until(lambda: stored(store) == 1)
    async with watched("more", store).running() as triggerer:
        await triggerer.until(1)

    assert uris(triggerer) == [["pvc://more/a"]]


async def test_a_missing_verb_and_a_missing_claim_are_said_once(
    claims: StandInClaims, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The watcher retries with growing pauses and announces what arrived meanwhile."""
    refused = PermissionDenied('read persistentvolumeclaims in team: cannot watch resource "persistentvolumeclaims"')
    claims.refusals = [refused] * 3
    monkeypatch.setattr(watcher, "pause_after", lambda *_: 0.01)  # minutes in production
    log = ""
    async with watched().running() as triggerer:
        while "has no claim" not in log:
            await asyncio.sleep(0.02)
            log += capsys.readouterr().out
        claims.note(_="a")
        await triggerer.until(1)

    assert uris(triggerer) == [["pvc://digits/a"]]
    log += capsys.readouterr().out
    assert log.count('cannot watch resource "persistentvolumeclaims"') == 1
    assert log.count("the namespace team has no claim of this name") == 1
    assert log.count("after the first failure") == 1
