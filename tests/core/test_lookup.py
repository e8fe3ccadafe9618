"""Tests of finding jobs by name: across kinds, and with missing rights."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, cast

import pytest

from ptjob_provider.core.errors import ClusterError, ClusterUnavailable, JobNotFound, PermissionDenied
from ptjob_provider.core.run.lookup import find_job, list_jobs
from rows import each_row

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.identity import Manifest

NOT_SERVED = ClusterError("read trainjobs: 404 page not found", code=404)
DENIED = PermissionDenied("read trainjobs: may not", code=403)
AWAY = ClusterUnavailable("no answer")
NONE = "team has no job digits"
FULL = ClusterUnavailable("quota", code=403)
ALL = ("PyTorchJob", "TrainJob", "PyTorchTrainingJob")


def job(kind: str, second: int = 0) -> Manifest:
    return {"kind": kind, "metadata": {"name": "digits", "creationTimestamp": f"2026-11-20T10:00:{second:02d}Z"}}


class ScriptedKinds:
    """A back-end with a scripted response for each kind: a job or an error."""

    def __init__(self, **said: Manifest | ClusterError) -> None:
        self.said = said

    async def get(self, kind: str, namespace: str, name: str) -> Manifest:
        found = self.said.get(kind) or JobNotFound(f"{kind} {namespace}/{name} not found", code=404)
        if isinstance(found, ClusterError):
            raise found
        return found

    async def list(self, kind: str, _namespace: str, _labels: Mapping[str, str]) -> list[Manifest]:
        found = self.said.get(kind)
        if isinstance(found, ClusterError):
            raise found
        return [found] if found else []


def backend(**said: Manifest | ClusterError) -> Any:
    """Return the scripted back-end, typed as a back-end."""
    return cast("Any", ScriptedKinds(**said))


BOTH = {"PyTorchJob": job("PyTorchJob", 2), "TrainJob": job("TrainJob", 1)}


@each_row(
    ("said", "how", "expected"),
    [
        (BOTH, {}, "PyTorchJob"),
        (BOTH, {"kind": "TrainJob"}, "TrainJob"),
        (BOTH, {"preferred": "TrainJob"}, "TrainJob"),
        (BOTH, {"kind": "PyTorchJob", "preferred": "TrainJob"}, "PyTorchJob"),
        ({"TrainJob": BOTH["TrainJob"]}, {}, "TrainJob"),
        ({**BOTH, "PyTorchJob": NOT_SERVED}, {}, "TrainJob"),
        ({**BOTH, "PyTorchJob": DENIED}, {}, "TrainJob"),
    ],
)
async def test_a_job_is_found_under_the_first_kind_that_has_it(
    said: dict[str, Any], how: dict[str, str], expected: str
) -> None:
    """A given kind is the only one searched, and a preferred one the first; one that cannot be read is skipped."""
    assert (await find_job(backend(**said), "team", "digits", **how))["kind"] == expected


@each_row(
    ("said", "expected", "text"),
    [
        ({}, JobNotFound, f"{NONE} (looked for PyTorchJob, TrainJob, PyTorchTrainingJob)"),
        ({"PyTorchJob": NOT_SERVED}, JobNotFound, f"{NONE} (looked for TrainJob, PyTorchTrainingJob)"),
        (
            {"TrainJob": DENIED, "PyTorchTrainingJob": NOT_SERVED},
            JobNotFound,
            f"{NONE} (looked for PyTorchJob); not looked at: read trainjobs: may not",
        ),
        ({"PyTorchJob": DENIED, "TrainJob": NOT_SERVED, "PyTorchTrainingJob": NOT_SERVED}, PermissionDenied, "may not"),
        (dict.fromkeys(ALL, NOT_SERVED), JobNotFound, "not"),
        ({"PyTorchJob": AWAY}, ClusterUnavailable, "no answer"),
    ],
)
async def test_a_job_that_is_not_there_is_said_to_be_missing(
    said: dict[str, Any], expected: type[Exception], text: str
) -> None:
    """The error lists the kinds that were searched and those that could not be; an unavailable server is no answer."""
    with pytest.raises(expected, match=re.escape(text)):
        await find_job(backend(**said), "team", "digits")


async def test_jobs_of_all_kinds_are_listed_oldest_first() -> None:
    """One readable kind is enough."""
    assert [each["kind"] for each in await list_jobs(backend(**BOTH), "team", {})] == ["TrainJob", "PyTorchJob"]
    assert await list_jobs(backend(**BOTH), "team", {}, kind="TrainJob") == [BOTH["TrainJob"]]
    assert await list_jobs(backend(**{**BOTH, "TrainJob": NOT_SERVED}), "team", {}) == [BOTH["PyTorchJob"]]
    assert await list_jobs(backend(**{**BOTH, "TrainJob": DENIED}), "team", {}) == [BOTH["PyTorchJob"]]


ONLY_TRAIN_JOBS = {**dict.fromkeys(ALL, NOT_SERVED), "TrainJob": DENIED}


@each_row(
    ("said", "how", "expected"),
    [
        (ONLY_TRAIN_JOBS, {}, PermissionDenied),
        (dict.fromkeys(ALL, NOT_SERVED), {}, ClusterError),
        ({"PyTorchJob": AWAY}, {}, ClusterUnavailable),
        ({"TrainJob": FULL}, {}, ClusterUnavailable),
        # the caller's kind is the first one that is served, as which it would create its job, or one that it has seen
        ({"PyTorchJob": DENIED}, {"own": ALL}, PermissionDenied),
        ({"TrainJob": DENIED}, {"own": ("TrainJob",)}, PermissionDenied),
        ({**ONLY_TRAIN_JOBS, "PyTorchTrainingJob": job("PyTorchTrainingJob")}, {"own": ALL}, PermissionDenied),
        ({"TrainJob": DENIED}, {"own": ("PyTorchJob",), "seen": {"TrainJob"}}, PermissionDenied),
    ],
)
async def test_listing_jobs_fails_if_neither_any_kind_nor_the_callers_can_be_listed(
    said: dict[str, Any], how: dict[str, Any], expected: type[Exception]
) -> None:
    """An empty list would mean that there are no jobs."""
    with pytest.raises(expected):
        await list_jobs(backend(**said), "team", {}, **how)


async def test_the_base_role_beside_trainer_is_enough_for_pytorchjobs() -> None:
    """It grants no other kind, and the cluster serves them; the caller creates none of them."""
    said: dict[str, Any] = {**BOTH, "TrainJob": DENIED, "PyTorchTrainingJob": DENIED}

    listing = list_jobs(backend(**said), "team", {}, own=("PyTorchJob", "TrainJob"))

    assert await asyncio.gather(listing, return_exceptions=True) == [[said["PyTorchJob"]]]


@pytest.mark.parametrize("error", [PermissionDenied("who are you", code=401), ClusterUnavailable("a proxy", code=404)])
async def test_an_answer_that_is_about_no_kind_is_no_missing_job(error: ClusterError) -> None:
    """The credential has expired, or a gateway answers for the server."""
    with pytest.raises(type(error)):
        await find_job(backend(PyTorchJob=error), "team", "digits")
    with pytest.raises(type(error)):
        await list_jobs(backend(PyTorchJob=error), "team", {})
