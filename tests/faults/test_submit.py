"""Creating a job when answers to it get lost: seen on the real server, through a proxy."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest

from cluster.images import INIT_IMAGE
from fakes import MemoryStore
from faults.fault import Fault, Harm, Traffic
from faults.proxy import FaultProxy
from ptjob_provider.core.identity import Owner
from ptjob_provider.core.kubernetes import KubernetesBackend
from ptjob_provider.core.run.submit import ensure_submitted
from ptjob_provider.core.spec import TrainingJob

if TYPE_CHECKING:
    from faults.api_server import ApiServer

LOST = Fault(harm=Harm.RESET, traffic=Traffic.REQUEST, arrives=True)
"""The server has created the job, and nobody learns of it."""


@pytest.mark.parametrize(
    "then",
    [
        Fault(harm=Harm.DELAY, traffic=Traffic.REQUEST, number=1),
        Fault(harm=Harm.TRUNCATE, traffic=Traffic.REQUEST, number=1),
        Fault(harm=Harm.TRUNCATE, traffic=Traffic.REQUEST, number=1, clean=True),
        Fault(harm=Harm.REFUSE, traffic=Traffic.REQUEST, number=1, code=409),
    ],
    ids=["whole", "broken", "cut", "repeated by a gateway"],
)
async def test_a_create_whose_answer_was_lost_is_one_job(server: ApiServer, then: Fault) -> None:
    """The second try is answered that the name is taken; however that answer arrives, the job is known as ours."""
    owner = Owner(instance="faults", ids={"task_id": secrets.token_hex(8)}, labels={})
    job = TrainingJob.parse(name="once", namespace=server.namespace, image=INIT_IMAGE, command=["true"], suspend=True)
    async with FaultProxy(server, [LOST, then]).running() as proxy:
        backend = KubernetesBackend(proxy.config(timeout=3.0))

        submission = await ensure_submitted(backend, job, owner=owner, store=MemoryStore())

        found = await server.job(submission.ref.name)
        assert (found["metadata"]["uid"], submission.attempt) == (submission.ref.uid, 1)
        assert not proxy.to_come
