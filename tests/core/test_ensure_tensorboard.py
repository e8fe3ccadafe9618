"""Tests of creating a TensorBoard for a job, against a scripted API server.

The running TensorBoard is tested on a cluster.
"""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from api_server_stand_in import stand_in_api_server
from fakes import ScriptedBackend
from ptjob_provider.core import kinds
from ptjob_provider.core.errors import PermissionDenied
from ptjob_provider.core.identity import JobRef, Owner
from ptjob_provider.core.kubernetes.client.http import shared_client
from ptjob_provider.core.kubernetes.tensorboard import of_job as waits
from ptjob_provider.core.kubernetes.tensorboard.of_job import ensure_tensorboard
from ptjob_provider.core.run.cleanup import act_on_finished
from ptjob_provider.core.spec import TrainingJob
from ptjob_provider.core.spec.on_finish import OnFinishAction
from ptjob_provider.core.tensorboard import TensorBoardPlan

if TYPE_CHECKING:
    from api_server_stand_in import StandInApiServer

pytestmark = pytest.mark.skips_waits

URL = "http://10.0.0.7:30131/"
SERVICE = {
    "metadata": {"name": "digits-tensorboard", "namespace": "team", "uid": "s-1", "ownerReferences": [{"uid": "u-1"}]},
    "spec": {"ports": [{"port": 6006, "nodePort": 30131}]},
}
EARLIER = {**SERVICE, "metadata": {**SERVICE["metadata"], "ownerReferences": [{"uid": "u-0"}]}}
POD = {"metadata": {"name": "p"}, "status": {"hostIP": "10.0.0.7"}}
PODS = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": [POD]}


def status(code: int, reason: str, message: str) -> tuple[int, dict[str, Any]]:
    """Return a refusal of the API server."""
    return code, {"kind": "Status", "code": code, "reason": reason, "message": message, "details": {"name": "digits"}}


TAKEN = status(409, "AlreadyExists", "already exists")
DENIED = status(403, "Forbidden", 'cannot create resource "deployments" in API group "apps" in the namespace "team"')
GONE = status(404, "NotFound", "gone")
SHARED, OF_ONE_NODE = ({"spec": {"accessModes": [mode]}} for mode in ("ReadWriteMany", "ReadWriteOnce"))


def job(*, url: str = "", ended: bool = False, kind: str = "PyTorchJob", asks: bool = True) -> dict[str, Any]:
    """Return the object of a job as an API server has it."""
    asked = TrainingJob.parse(
        name="digits", namespace="team", image="digits:1", tfevents="pvc://runs/tb", tensorboard=asks, kind=kind
    )
    owner = Owner(instance="test", ids={}, labels={})
    found = copy.deepcopy(kinds.named(kind).render(asked, owner=owner, attempt=1, exact_name=True).manifest)
    found["metadata"] |= {"uid": "u-1", "creationTimestamp": "2026-11-20T10:00:00Z"}
    plan = TensorBoardPlan.of(found)
    if plan and url:
        found["metadata"]["annotations"] |= replace(plan, url=url).annotation
    if ended:
        word = "Complete" if kind == "TrainJob" else "Succeeded"
        found["status"] = {"conditions": [{"type": word, "status": "True"}]}
    return found


def stated(*script: Any) -> list[Any]:
    """Return the responses of a script; a step that is only a body has status 200."""
    return [step if isinstance(step, tuple) else (200, step) for step in script]


async def asked(*script: Any) -> tuple[str, list[str]]:
    """Return the address and all requests, as verb and last part of the path."""
    async with stand_in_api_server(*stated(*script)) as server:
        return await asked_of(server, script[0])


async def asked_of(server: StandInApiServer, found: dict[str, Any]) -> tuple[str, list[str]]:
    async with shared_client(server.config()) as client:
        url = await ensure_tensorboard(client, JobRef.of({**found, "metadata": {**found["metadata"], "uid": "u-1"}}))
    words = [line.split()[:2] for line in server.requests]
    return url, [f"{verb} {path.partition('?')[0].rpartition('/')[2]}" for verb, path in words]


async def test_both_objects_are_made_and_their_address_is_noted() -> None:
    """After a kill at any point, the next try completes the rest; the pod comes last.

    The server compares the uid, because another job may have the name by then.
    """
    script = stated(job(), SHARED, SERVICE, {}, PODS, {})
    async with stand_in_api_server(*script) as server:
        url, requests = await asked_of(server, job())

    assert url == URL
    assert requests == ["GET digits", "GET runs", "POST services", "POST deployments", "GET pods", "PATCH digits"]
    assert server.bodies[-1]["metadata"].get("uid") == "u-1"


async def test_existing_objects_of_a_tensorboard_are_not_created_again() -> None:
    """Existing objects of the job are kept; with an address on the job, there are no further requests."""
    url, requests = await asked(job(), SHARED, TAKEN, SERVICE, TAKEN, SERVICE, PODS, {})
    known, few = await asked(job(url=URL))

    assert (url, known) == (URL, URL)
    assert requests[2:6] == ["POST services", "GET digits-tensorboard", "POST deployments", "GET digits-tensorboard"]
    assert few == ["GET digits"]


async def test_the_tensorboard_address_of_a_job_that_waits_is_that_of_the_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a node, the address is the Service's name, which works inside the cluster."""
    monkeypatch.setattr(waits, "_PLACED", 0.1)

    url, requests = await asked(job(), SHARED, SERVICE, {}, {**PODS, "items": []}, {})

    assert url == "http://digits-tensorboard.team.svc:6006/"
    assert requests[-1] == "PATCH digits"


async def test_the_tensorboard_of_an_earlier_job_is_waited_for_until_it_is_gone() -> None:
    """The cluster is deleting it."""
    url, requests = await asked(job(), SHARED, TAKEN, EARLIER, TAKEN, GONE, SERVICE, {}, PODS, {})

    assert url == URL
    assert requests.count("POST services") == 3


@pytest.mark.parametrize(
    "found",
    [job(asks=False), job(kind="PyTorchTrainingJob"), {**job(), "metadata": {**job()["metadata"], "uid": "u-2"}}],
)
async def test_no_tensorboard_is_made_for_a_job_that_wants_none(found: dict[str, Any]) -> None:
    """The job has none, is of T9k, whose controller makes its own, or is another job of the name."""
    assert await asked(found) == ("", ["GET digits"])


@pytest.mark.parametrize(
    ("refused", "said"),
    [(DENIED, "the Role of deploy/components/tensorboard"), (GONE, "gone")],
)
async def test_a_job_goes_on_without_what_cannot_be_made(
    refused: object, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    url, _ = await asked(job(), SHARED, refused)

    assert url == ""
    (record,) = caplog.records
    assert re.match(f"team/digits has no TensorBoard: .*{said}", record.getMessage())


async def test_on_a_claim_of_one_node_a_tensorboard_ends_with_the_training() -> None:
    """The next attempt may run on another node; objects that are gone or belong to others are ignored."""
    nobodys = {**SERVICE, "metadata": {**SERVICE["metadata"], "ownerReferences": None}}

    url, requests = await asked(job(url=URL, ended=True), OF_ONE_NODE, SERVICE, {}, SERVICE, {}, {})
    none, few = await asked(job(url=URL, ended=True), OF_ONE_NODE, GONE, nobodys, {})

    assert (url, none) == ("", "")
    assert [each.split()[0] for each in requests] == ["GET", "GET", "GET", "DELETE", "GET", "DELETE", "PATCH"]
    assert [each.split()[0] for each in few] == ["GET", "GET", "GET", "GET", "PATCH"]


async def test_a_tensorboard_without_a_stored_address_is_deleted_with_the_training() -> None:
    """Its creator may have been killed before it stored the address; a new object of the name is kept."""
    other = status(409, "Conflict", "the UID is another")

    url, requests = await asked(job(ended=True), OF_ONE_NODE, SERVICE, other, SERVICE, {})

    assert url == ""
    assert [each.split()[0] for each in requests] == ["GET", "GET", "GET", "DELETE", "GET", "DELETE"]


@pytest.mark.parametrize(
    ("script", "made"),
    [
        ([TAKEN, SERVICE, DENIED], ["DELETE services"]),
        ([SERVICE, {}, PODS, DENIED], ["DELETE deployments", "DELETE services"]),
    ],
)
async def test_a_half_made_tensorboard_is_deleted(
    script: list[Any], made: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """An unknown pod would keep the claim of one node busy, so all requests that can be refused come first."""
    found = [SERVICE, {}] * len(made) if len(made) > 1 else [GONE, SERVICE, {}]
    async with stand_in_api_server(*stated(job(), OF_ONE_NODE, *script, *found)) as server:
        url, _ = await asked_of(server, job())
    deletes = [(line, body) for line, body in zip(server.requests, server.bodies, strict=True) if "DELETE" in line]

    assert url == ""
    assert [f"DELETE {line.split()[1].split('/')[-2]}" for line, _ in deletes] == made
    assert all(body["preconditions"] == {"uid": "s-1"} for _, body in deletes)
    assert caplog.text.count("has no TensorBoard") == 1


async def test_on_a_shared_claim_a_tensorboard_stays_as_long_as_the_job() -> None:
    """It does not block the claim. A failed creation is not repeated at the end."""
    assert await asked(job(url=URL, ended=True), SHARED) == (URL, ["GET digits", "GET runs"])
    assert await asked(job(ended=True), SHARED) == ("", ["GET digits", "GET runs"])


def everlasting() -> dict[str, Any]:
    """Return an ended job from a manifest without a time to live."""
    found = job(url=URL, ended=True)
    del found["spec"]["runPolicy"]["ttlSecondsAfterFinished"]
    return found


@pytest.mark.parametrize("found", [job(url=URL, ended=True, kind="TrainJob"), everlasting()])
async def test_a_tensorboard_of_a_job_without_expiry_ends_with_the_training(found: dict[str, Any]) -> None:
    """This holds for every claim: nothing else would end it."""
    url, requests = await asked(found, SERVICE, {}, SERVICE, {}, {})

    assert url == ""
    assert [each.split()[0] for each in requests] == ["GET", "GET", "DELETE", "GET", "DELETE", "PATCH"]


async def test_a_right_that_is_missing_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    """It is reported when the job begins; at the end there is nothing to delete."""
    assert (await asked(job(ended=True), OF_ONE_NODE, DENIED))[0] == ""
    assert caplog.text == ""


async def test_a_tensorboard_of_an_earlier_job_that_stays_is_named(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This wait ends before the overall timeout, whose error would not name the object."""
    assert waits._TAKEN < waits._TIMEOUT
    monkeypatch.setattr(waits, "_TAKEN", 0.1)

    url, _ = await asked(job(), SHARED, TAKEN, EARLIER, GONE, GONE)

    assert url == ""
    assert "services team/digits-tensorboard: it exists and belongs to another job" in caplog.text


async def test_the_expiry_of_a_job_is_set_before_its_tensorboard_is_ensured() -> None:
    """If the job cannot be patched, it does not expire, and its TensorBoard has to end."""
    backend = ScriptedBackend()
    ref = await backend.submit(everlasting())
    backend.patch_error = PermissionDenied("cannot patch")

    with pytest.raises(PermissionDenied):
        await act_on_finished(backend, ref, OnFinishAction.KEEP_JOB, succeeded=True)

    assert backend.tensorboards_ensured == [ref]


async def test_a_tensorboard_that_cannot_be_deleted_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    url, _ = await asked(job(url=URL, ended=True), OF_ONE_NODE, SERVICE, DENIED)

    assert url == URL
    assert "its TensorBoard could not be taken away: " in caplog.text
    assert "it still has the claim team/runs, which one node can mount" in caplog.text
