"""Copy a code folder that is too large for Secrets to a claim that the job mounts; the file's name is a content hash.

Copies like `ptjob data cp`, through a pod with rank 0's user and node selection. An archive that exists on the claim is
not sent again if its content has the hash; a damaged one is replaced. Archives are never deleted.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import os
import shutil
import tarfile
import tempfile
from contextlib import suppress
from typing import IO, TYPE_CHECKING

from ptjob_provider.core import kinds
from ptjob_provider.core.code.folder import MAX_BYTES, megabytes, too_large
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.identity import CODE_ANNOTATION
from ptjob_provider.core.inspector import FileOptions
from ptjob_provider.core.kinds.code import ON_CLAIM, with_archive_on, writable_claims
from ptjob_provider.core.kinds.pod_template import find_container
from ptjob_provider.core.kubernetes.claim_files import mounted
from ptjob_provider.core.kubernetes.pods import inherited, placement
from ptjob_provider.core.kubernetes.preflight import is_allowed
from ptjob_provider.core.kubernetes.rights import EXEC
from ptjob_provider.core.spec.code import MAX_TRAVELS

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kubernetes.claim_files import ClaimPod
    from ptjob_provider.core.kubernetes.client.http import Client
    from ptjob_provider.core.kubernetes.probe import ProbeOptions

logger = logging.getLogger(__name__)

_NO_CLAIM = "the job mounts no claim that all its pods can write to: mount one with `volumes`"
_NO_RIGHT = f"`pods/exec create` is not allowed: grant what {EXEC.given_by} has, whose holder can enter every pod"


async def with_folder_on_claim(
    client: Client, manifest: Manifest, archive: IO[bytes], *, probe: ProbeOptions
) -> Manifest:
    """Copy the archive to the first of the job's writable claims; return the job, changed to unpack it from there.

    Args:
        client: client of the cluster.
        manifest: the job.
        archive: tar archive of the folder.
        probe: settings of the pod.

    Raises:
        InvalidSpec: the job mounts no such claim, or `pods/exec create` is not allowed; nothing was created.
        ClusterError: the claim cannot be mounted, or not be written to.
    """
    meta, claims = manifest["metadata"], writable_claims(manifest)
    obstacles = [] if claims else [_NO_CLAIM]
    if not await is_allowed(client, meta["namespace"], EXEC):
        obstacles.append(_NO_RIGHT)
    if obstacles:
        small, large = megabytes(MAX_TRAVELS), megabytes(MAX_BYTES)
        raise too_large(archive, allowed=f"{small} compressed, or {large} over a claim, but {'; and '.join(obstacles)}")
    digest = json.loads(meta["annotations"][CODE_ANNOTATION])["digest"].removeprefix("sha256:")
    async with mounted(client, meta["namespace"], claims[0], _options(manifest, probe)) as files:
        await ensure_archive(files, f"{digest}.tar.gz", archive)
    return with_archive_on(manifest, claims[0], digest)


def _options(manifest: Manifest, probe: ProbeOptions) -> FileOptions:
    """Return the options of a pod with rank 0's node selection and permissions."""
    kind = kinds.kind_of(manifest)
    template = kind.rank0_template(manifest)
    trainer = find_container(template, kind.CONTAINER)
    for_pod, for_container = inherited(template, trainer)
    return FileOptions(
        image=probe.image or trainer.get("image") or probe.files_image,
        timeout=probe.timeout,
        pod=for_pod | placement(template, trainer, on_its_node=False),
        container=for_container,
        title=probe.title,
    )


async def ensure_archive(files: ClaimPod, name: str, archive: IO[bytes]) -> None:
    """Send the archive, compressed, unless the claim has it undamaged; a partial copy never has this name.

    Args:
        files: the files on the claim.
        name: file name of the archive: its digest, with a suffix.
        archive: the archive.
    """
    with suppress(InvalidSpec):  # the claim does not have the file, or it is damaged
        if await files.digest(f"{ON_CLAIM}/{name}") == name.partition(".")[0]:
            return
    size = archive.seek(0, os.SEEK_END)
    logger.warning("copying the code to the claim, %s before it is compressed: %s/%s", megabytes(size), ON_CLAIM, name)
    archive.seek(0)
    with tempfile.TemporaryFile() as stream:
        await asyncio.to_thread(_compress, archive, name, stream)
        await files.unpack(stream, ON_CLAIM, name)


def _compress(archive: IO[bytes], name: str, stream: IO[bytes]) -> None:
    """Write a tar with the compressed archive as its only file, because `ClaimFiles.unpack` takes a tar."""
    with tempfile.TemporaryFile() as file:
        with gzip.GzipFile("", "wb", 1, file, mtime=0) as compressed:
            shutil.copyfileobj(archive, compressed)
        info = tarfile.TarInfo(name)
        info.size = file.tell()
        file.seek(0)
        with tarfile.open(fileobj=stream, mode="w") as tar:
            tar.addfile(info, file)
    stream.seek(0)
