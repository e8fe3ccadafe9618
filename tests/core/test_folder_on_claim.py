"""Tests of copying a folder that is too large for Secrets to a claim, against a scripted API server.

The copy itself is tested in tests/contract/test_folder.py.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, cast

import pytest

from api_server_stand_in import stand_in_api_server
from ptjob_provider.core.code.folder import with_packed_folder
from ptjob_provider.core.errors import ClusterError, InvalidSpec
from ptjob_provider.core.in_pod import claim_files
from ptjob_provider.core.kinds import PYTORCHJOB
from ptjob_provider.core.kubernetes import KubernetesBackend
from ptjob_provider.core.kubernetes.folder_on_claim import ensure_archive
from ptjob_provider.core.local.inspector import LocalFiles
from ptjob_provider.core.spec import TrainingJob
from ptjob_provider.core.spec.code import PackedCode
from recorded import OWNER

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import IO

    from api_server_stand_in import StandInApiServer
    from ptjob_provider.core.kubernetes.claim_files import ClaimPod

ALLOWED, REFUSED = (201, {"status": {"allowed": True}}), (201, {"status": {"allowed": False}})
NOISE = 16_100_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that cannot be compressed."""
    made = tmp_path_factory.mktemp("project")
    (made / "data").mkdir()
    (made / "data" / "noise").write_bytes(os.urandom(NOISE))
    return made


def job_of(folder: Path, **fields: Any) -> TrainingJob:
    job = TrainingJob.parse(
        name="digits", namespace="team", image="digits:1", command=["python", "train.py"], code=str(folder), **fields
    )
    return with_packed_folder(job, beside=folder)


def archive_of(job: TrainingJob) -> IO[bytes]:
    assert isinstance(job.code, PackedCode)
    assert job.code.tar is not None
    return job.code.tar


class FilesStandIn(LocalFiles):
    """Stands in for the files that a pod mounts; verifies one by the program that runs in the pod."""

    async def digest(self, path: str) -> str:
        command = [sys.executable, claim_files.__file__, "digest", str(self._root), path]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise InvalidSpec.of("path", path, done.stderr.splitlines()[-1])
        return str(json.loads(done.stdout))


async def ensure_on(place: Path, job: TrainingJob) -> Path:
    """Send the job's archive to a claim, and return the file."""
    assert isinstance(job.code, PackedCode)
    name = f"{job.code.digest}.tar.gz"
    await ensure_archive(cast("ClaimPod", FilesStandIn(place)), name, archive_of(job))
    return place / ".ptjob" / "code" / name


async def submit(server: StandInApiServer, job: TrainingJob) -> None:
    rendered = PYTORCHJOB.render(job, owner=OWNER, attempt=1)
    backend = KubernetesBackend(server.config())
    await backend.submit(rendered.manifest, secret=rendered.secret, archive=archive_of(job))


@pytest.mark.parametrize(
    ("volumes", "answer", "words"),
    [
        ([], ALLOWED, "but the job mounts no claim that all its pods can write to: .*`volumes`; the largest"),
        (["runs:/runs"], REFUSED, "but `pods/exec create` is not allowed: grant what deploy/components/data has.*"),
        ([], REFUSED, "but the job mounts no claim .*; and `pods/exec create` is not allowed: .*"),
    ],
)
async def test_a_large_folder_without_claim_or_right_is_refused_before_anything_is_made(
    folder: Path, volumes: list[str], answer: Any, words: str
) -> None:
    """The error names the claim or the right that is missing, the size, the largest files and the alternatives."""
    whole = rf"^code: 16.1 MB are not allowed; allowed: 16.0 MB compressed, or 1,073.7 MB over a claim, {words}"

    async with stand_in_api_server(answer) as server:
        with pytest.raises(InvalidSpec, match=rf"{whole}.* data/ \(16.1 MB\).*ptjob data cp.*image") as raised:
            await submit(server, job_of(folder, volumes=volumes))

    assert ("pods/exec" in str(raised.value)) == (answer is REFUSED)
    assert [each.split()[1].partition("?")[0].rpartition("/")[2] for each in server.requests] == [
        "selfsubjectaccessreviews"
    ]


async def test_the_pod_that_takes_the_folder_is_where_rank_0_can_be(folder: Path) -> None:
    """It has the user of rank 0, who reads the folder; if the copy fails, no job is created."""
    job = job_of(
        folder,
        volumes=["runs:/runs"],
        node_selector={"zone": "a"},
        service_account_name="train",
        security_context={"runAsUser": 1000, "fsGroup": 2000},
    )
    failed = (200, {"metadata": {"name": "x"}, "spec": {"containers": []}, "status": {"phase": "Failed"}})

    async with stand_in_api_server(ALLOWED, (200, {}), (201, {}), failed) as server:
        with pytest.raises(ClusterError, match="reach the files"):
            await submit(server, job)

    (pod,) = [each["spec"] for each in server.bodies if each and each.get("kind") == "Pod"]
    (container,) = pod["containers"]
    assert pod["volumes"] == [{"name": "claim", "persistentVolumeClaim": {"claimName": "runs"}}]
    assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["fsGroup"]) == (1000, 2000)
    assert (pod["nodeSelector"], pod["serviceAccountName"]) == ({"zone": "a"}, "train")
    assert (container["image"], container["securityContext"]["runAsNonRoot"]) == ("digits:1", True)
    assert server.requests[-1].startswith("DELETE /api/v1/namespaces/team/pods/")
    assert not any("pytorchjobs" in each for each in server.requests)


async def test_an_archive_is_sent_once(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with the content that its name says is complete."""
    job = job_of(folder)  # keeps the archive open

    sent = await ensure_on(tmp_path, job)

    archive_of(job).seek(0)
    assert gzip.decompress(sent.read_bytes()) == archive_of(job).read()
    monkeypatch.delattr(LocalFiles, "unpack")
    await ensure_on(tmp_path, job)


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda _: gzip.compress(b"other"), lambda _: b"none"])
async def test_a_damaged_archive_is_replaced(folder: Path, tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    """Its name alone proves nothing: every later job would fail to unpack it."""
    job = job_of(folder)
    sent = await ensure_on(tmp_path, job)
    data = sent.read_bytes()
    sent.write_bytes(damage(data))

    await ensure_on(tmp_path, job)

    assert sent.read_bytes() == data
