"""Tests of the check that a TrainJob's runtime exists, where the answer is unclear; a stand-in sends bad responses."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from api_server_stand_in import stand_in_api_server
from ptjob_provider.core.errors import InvalidSpec, KindNotServed
from ptjob_provider.core.identity import STEPS_ANNOTATION
from ptjob_provider.core.kubernetes import KubernetesBackend
from ptjob_provider.core.kubernetes.client.http import shared_client
from ptjob_provider.core.kubernetes.discovery import fitted_to_runtime
from trainer_runtimes import shipped

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Manifest

NOT_SERVED = (404, "404 page not found\n")
"""An API server's response for a group that is not installed: no Status."""


def listed(*items: Manifest) -> tuple[int, dict[str, Any]]:
    """Return the API server's response with these runtimes."""
    return (200, {"kind": "L", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": [*items]})


DOCUMENTS: tuple[int, dict[str, Any]] = (200, {"paths": {}})


def trainjob(runtime: str = "torch-distributed") -> Manifest:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "digits", "namespace": "team"},
        "spec": {"runtimeRef": {"name": runtime}, "trainer": {"numNodes": 1}},
    }


async def test_a_cluster_without_trainer_says_what_to_install() -> None:
    """The create is refused like one of a kind that is not served, so that the next kind is tried."""
    async with stand_in_api_server(NOT_SERVED, NOT_SERVED, DOCUMENTS) as server:
        with pytest.raises(KindNotServed, match="install Kubeflow Trainer"):
            await KubernetesBackend(server.config()).submit(trainjob())

    assert [line.split()[0] for line in server.requests] == ["GET", "POST", "GET"]


@pytest.mark.parametrize("answer", [403, 503, NOT_SERVED])
async def test_a_runtime_that_cannot_be_read_is_left_to_the_create(
    answer: object, caplog: pytest.LogCaptureFixture
) -> None:
    """The job is not refused, and no log begins with a line about a right that is missing as a rule."""
    caplog.set_level(logging.DEBUG, logger="ptjob_provider")

    async with stand_in_api_server(answer) as server, shared_client(server.config(attempts=1)) as client:
        await fitted_to_runtime(client, trainjob())

    assert [each.levelno for each in caplog.records if "cannot check for" in each.message] == [logging.DEBUG]


@pytest.mark.parametrize("answer", [403, 503, NOT_SERVED])
async def test_a_runtime_that_is_missing_is_said_although_others_cannot_be_named(answer: object) -> None:
    async with stand_in_api_server(listed(), answer) as server, shared_client(server.config(attempts=1)) as client:
        with pytest.raises(InvalidSpec, match=r"runtime: 'own'.*there is none of that kind; read trainingruntimes"):
            await fitted_to_runtime(client, trainjob("own"))


async def test_a_job_is_fitted_to_its_runtime_before_it_is_created(caplog: pytest.LogCaptureFixture) -> None:
    """At each submission: the runtime may have changed. What reaches the launcher alone is logged."""
    job = trainjob("deepspeed-distributed")
    job["spec"]["trainer"] |= {"numNodes": 2, "image": "mine"}
    created = (201, {**job, "metadata": {**job["metadata"], "uid": "u"}})

    async with stand_in_api_server(listed(shipped("deepspeed-distributed")), created) as server:
        await KubernetesBackend(server.config()).submit(job)

    sent = next(body for body in server.bodies if body)
    assert json.loads(sent["metadata"]["annotations"][STEPS_ANNOTATION]) == {"launcher": 1, "node": 1}
    assert "team/digits: Trainer gives image to the launcher alone" in caplog.text
