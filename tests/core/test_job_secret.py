"""Tests of creating the Secret of a job with no right except `create`, against a scripted API server."""

from __future__ import annotations

import pytest

from api_server_stand_in import stand_in_api_server
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.in_pod import unpack_code
from ptjob_provider.core.kinds.code import in_pieces
from ptjob_provider.core.kubernetes import KubernetesBackend
from ptjob_provider.core.spec.code import MAX_TRAVELS

REF = JobRef(kind="PyTorchJob", namespace="team", name="digits", uid="uid-1")
SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "digits-code-x"}, "stringData": {"k": "v"}}
META = {"name": "digits", "namespace": "team"}
VOLUME = {"name": "code-archive", "secret": {"secretName": "digits-code-x"}}
JOB = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": META,
    "spec": {"pytorchReplicaSpecs": {"Master": {"template": {"spec": {"volumes": [VOLUME]}}}}},
}
MADE = (201, {**JOB, "metadata": {**META, "uid": "uid-1"}})
TAKEN = (409, {"kind": "Status", "code": 409, "reason": "AlreadyExists", "message": "taken"})


@pytest.mark.parametrize("answer", [(201, {"kind": "Secret", "metadata": {}}), TAKEN])
async def test_a_secret_is_made_and_never_read(answer: object) -> None:
    """An existing one is from an earlier try, because the name is not known to anyone else."""
    async with stand_in_api_server(answer) as server:
        await KubernetesBackend(server.config()).give_secret(REF, SECRET)

    assert [each.partition("?")[0] for each in server.requests] == ["POST /api/v1/namespaces/team/secrets"]
    (owner,) = server.bodies[0]["metadata"]["ownerReferences"]
    assert (owner["name"], owner["uid"]) == ("digits", "uid-1")


async def test_a_job_whose_secret_a_webhook_refuses_is_deleted() -> None:
    """Its pods would wait for the Secret forever; the error says that nothing was started."""
    denied = 'admission webhook "policy.example" denied the request: no Secrets here'
    refused = (403, {"kind": "Status", "code": 403, "reason": "Forbidden", "message": denied})

    async with stand_in_api_server(MADE, (201, {}), refused) as server:
        with pytest.raises(InvalidSpec, match="no Secrets here"):
            await KubernetesBackend(server.config()).submit(JOB, secret=SECRET)

    assert server.requests[-1].startswith("DELETE /apis/kubeflow.org/v1/namespaces/team/pytorchjobs/digits")
    assert server.bodies[-1]["preconditions"] == {"uid": "uid-1"}


async def test_a_large_folder_is_in_secrets_that_the_job_owns_and_mounts() -> None:
    """A Secret that an earlier try created is kept."""
    secret = {**SECRET, "stringData": {unpack_code.ARCHIVE: 600_000 * "QUJD", unpack_code.PROGRAM: ""}}

    async with stand_in_api_server(MADE, (201, {}), (201, {}), TAKEN, (201, {})) as server:
        await KubernetesBackend(server.config()).submit(JOB, secret=secret)

    created, _, *secrets = server.bodies
    names = ["digits-code-x", "digits-code-x-1", "digits-code-x-2"]
    (mounted,) = created["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["volumes"]
    assert [each["secret"]["name"] for each in mounted["projected"]["sources"]] == names
    assert [each["metadata"]["name"] for each in secrets] == names
    assert {each["metadata"]["ownerReferences"][0]["uid"] for each in secrets} == {"uid-1"}


def test_an_archive_that_is_on_a_claim_is_in_no_secret() -> None:
    """The Secret then contains only the unpacking program, also when a retry restores it for an adopted job."""
    largest = (MAX_TRAVELS + 2) // 3 * "QUJD"
    fits = {**SECRET, "stringData": {unpack_code.ARCHIVE: largest, unpack_code.PROGRAM: "x"}}
    large = {**SECRET, "stringData": {unpack_code.ARCHIVE: largest + "QUJD", unpack_code.PROGRAM: "x"}}

    assert len(in_pieces(fits)) == 22
    assert in_pieces(large) == [{**SECRET, "stringData": {unpack_code.PROGRAM: "x"}}]
