"""Tests of temporary API errors: two lines in the log, and the job continues."""

from __future__ import annotations

import asyncio
import weakref
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from fakes import ListSink, ScriptedBackend
from ptjob_provider.core.backend import Observation
from ptjob_provider.core.errors import (
    ClusterError,
    ClusterUnavailable,
    InvalidSpec,
    JobNotFound,
    PermissionDenied,
    PTJobError,
)
from ptjob_provider.core.logs import LogCursor, LogLine
from ptjob_provider.core.run.api_errors import ApiErrors
from ptjob_provider.core.run.follow import follow
from ptjob_provider.core.run.outcome import Outcome
from ptjob_provider.core.run.submit import Submission
from stand_in_watches import job

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ptjob_provider.core.identity import Manifest

pytestmark = pytest.mark.skips_waits

FORBIDDEN = PermissionDenied('pods is forbidden: User "ptjob" cannot watch resource "pods" (403)', code=403)
REFUSALS = [
    FORBIDDEN,
    ClusterError("404 page not found (404)", code=404),
    InvalidSpec("the kubeconfig is being written"),
]


def backend_with(*conditions: str) -> ScriptedBackend:
    """Return a back-end with this job and one log line of rank 0."""
    backend = ScriptedBackend()
    backend.jobs["team", "digits"] = job("digits", *conditions)
    backend.worlds = [Observation(job=backend.jobs["team", "digits"])]
    at = "2026-11-20T12:00:01Z"
    cursor = LogCursor(pod_uid="p", container="pytorch", restart_count=0, timestamp=at, ordinal=0)
    backend.lines = [LogLine(text="one", timestamp=at, cursor=cursor)]
    return backend


async def followed(backend: ScriptedBackend, sink: ListSink, **how: Any) -> Any:
    async with asyncio.timeout(3600):
        return await follow(backend, Submission.of(job()), sink=sink, **how)


def about_refusals(sink: ListSink) -> list[str]:
    return [text for text in sink.notices if "a request about the job" in text or "answered again" in text]


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
@pytest.mark.parametrize("verb", ["watch", "logs", "pods_gone"])
async def test_a_passing_refusal_does_not_end_following(refusal: PTJobError, verb: str) -> None:
    """The first line quotes the server and gives the timeout; the second one reports the recovery."""
    backend, sink = backend_with("Failed"), ListSink()
    backend.refusals[verb] = [refusal] * 4

    conclusion = await followed(backend, sink, api_error_timeout=60)

    assert conclusion.outcome is Outcome.FAILED
    assert sink.lines == ["one"]
    began, ended = about_refusals(sink)
    assert str(refusal) in began
    assert "up to 60 s" in began
    assert "answered again" in ended
    assert backend.deleted == []


def pod_that_was_stopped() -> Manifest:
    """Return a worker pod that was stopped from outside."""
    ended = {"exitCode": 143, "startedAt": "2026-11-20T12:00:00Z", "finishedAt": "2026-11-20T12:05:00Z"}
    return {
        "metadata": {"name": "digits-worker-0", "uid": "w", "creationTimestamp": "2026-11-20T12:00:00Z"},
        "spec": {"containers": [{"name": "pytorch"}]},
        "status": {"phase": "Failed", "containerStatuses": [{"name": "pytorch", "state": {"terminated": ended}}]},
    }


async def test_a_passing_refusal_does_not_hide_why_a_job_failed() -> None:
    """The events of the operator are read once, because they may explain why the worker was stopped."""
    backend, sink = backend_with("Failed"), ListSink()
    backend.worlds = [Observation(job=backend.jobs["team", "digits"], pods=[pod_that_was_stopped()])]
    backend.refusals["reasons"] = [FORBIDDEN] * 4

    conclusion = await followed(backend, sink, api_error_timeout=60)

    assert conclusion.outcome is Outcome.FAILED
    assert backend.asked_why == 1
    assert len(about_refusals(sink)) == 2


async def test_a_job_that_is_past_its_deadline_is_deleted_as_soon_as_that_is_allowed() -> None:
    backend, sink = backend_with("Running"), ListSink()
    backend.refusals["delete"] = [FORBIDDEN] * 3

    conclusion = await followed(backend, sink, deadline=datetime(2026, 11, 20, tzinfo=UTC))

    assert conclusion.outcome is Outcome.TIMED_OUT
    assert not backend.jobs


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
async def test_a_lasting_refusal_is_an_error_that_a_retry_may_mend(refusal: PTJobError) -> None:
    """The error names the job that keeps running, the duration and, if a server refused, the Role to check."""
    backend, sink = backend_with("Running"), ListSink()
    backend.refusals["watch"] = [refusal] * 10_000

    with pytest.raises(ClusterUnavailable, match=r"^team/digits: .*refused.* left as it is") as raised:
        await followed(backend, sink, api_error_timeout=60)

    assert str(refusal) in str(raised.value)
    assert ("Check the credential, the Role" in str(raised.value)) is isinstance(refusal, ClusterError)
    assert raised.value.retryable
    assert len(about_refusals(sink)) == 1
    assert backend.jobs


async def test_refusals_count_from_the_last_answer() -> None:
    """A stream that was open in between counts as an answer, even if it had no items."""
    messages: list[str] = []
    errors = ApiErrors("team/digits", messages.append, timeout=20.0)
    opened = 0

    async def silent() -> AsyncGenerator[int, None]:
        nonlocal opened
        opened += 1
        await asyncio.sleep(6.0)
        if opened <= 10:
            raise FORBIDDEN
        yield opened

    assert [number async for number in errors.stream(silent)] == [11]
    assert len([text for text in messages if "answered again" in text]) == 10


async def test_a_refusal_of_two_concurrent_requests_is_reported_once() -> None:
    """The recovery is reported when the last request succeeds."""
    messages: list[str] = []
    errors = ApiErrors("team/digits", messages.append, timeout=60)
    refusals = {"one": 3, "two": 6}

    async def ask(who: str) -> str:
        if refusals[who]:
            refusals[who] -= 1
            raise FORBIDDEN
        return who

    assert await asyncio.gather(errors.answer(lambda: ask("one")), errors.answer(lambda: ask("two"))) == ["one", "two"]
    assert len(messages) == 2


async def test_a_job_that_is_gone_is_no_refusal() -> None:
    messages: list[str] = []
    errors = ApiErrors("team/digits", messages.append)

    async def gone() -> None:
        raise JobNotFound("gone", code=404)

    async def gone_stream() -> AsyncGenerator[None, None]:
        raise JobNotFound("gone", code=404)
        yield

    with pytest.raises(JobNotFound):
        await errors.answer(gone)
    with pytest.raises(JobNotFound):
        await anext(errors.stream(gone_stream))
    assert messages == []


async def test_an_item_of_a_stream_is_freed_while_the_next_one_is_waited_for() -> None:
    """With 10,000 followers, keeping the last item would take two thirds of their memory."""

    class Item:
        pass

    kept: list[weakref.ref[Item]] = []

    async def items() -> AsyncGenerator[Item, None]:
        item = Item()
        kept.append(weakref.ref(item))
        yield item
        del item
        await asyncio.Event().wait()

    stream = ApiErrors("team/digits", print).stream(items)
    await anext(stream)
    following = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)

    assert [each() for each in kept] == [None]
    following.cancel()
