"""How a cluster is asked to delete a job; the server is a stand-in."""

from __future__ import annotations

import pytest

from api_server_stand_in import stand_in_api_server
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.kubernetes import KubernetesBackend


@pytest.mark.parametrize(
    ("kind", "policy"), [("PyTorchJob", "Foreground"), ("TrainJob", "Background"), ("PyTorchTrainingJob", "Foreground")]
)
async def test_a_job_goes_with_all_that_it_owns(kind: str, policy: str) -> None:
    """Its pods first, where the operator stands that; no replica is left to hold its GPUs for nobody."""
    ref = JobRef(kind=kind, namespace="team", name="digits", uid="u-1")

    async with stand_in_api_server() as server:
        await KubernetesBackend(server.config()).delete(ref)

    assert [body["propagationPolicy"] for body in server.bodies] == [policy]
