"""Check the runtime that a job names before the job is created, if the Role allows it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ptjob_provider.core import kinds
from ptjob_provider.core.code_sync import CONTAINER as SYNC_CONTAINER
from ptjob_provider.core.errors import ClusterError, InvalidSpec, PermissionDenied, one_of
from ptjob_provider.core.kinds import trainjob
from ptjob_provider.core.kubernetes import paths

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kubernetes.client import Client

logger = logging.getLogger(__name__)

_PREFIXES = {"ClusterTrainingRuntime": "", "TrainingRuntime": "TrainingRuntime/"}
"""Formats of a runtime's name in a job, per kind."""


async def check_runtime(client: Client, manifest: Manifest) -> None:
    """Check that the job's runtime exists; if unreadable, the create reports a missing one.

    Raises:
        InvalidSpec: it does not exist; the text lists the existing ones.
    """
    runtime = kinds.kind_of(manifest).runtime_of(manifest)
    if runtime is None:
        return
    meta = manifest["metadata"]
    try:
        found = await _listed(client, runtime.kind, meta["namespace"])
    except ClusterError as error:
        level = logging.INFO if isinstance(error, PermissionDenied) else logging.DEBUG
        about = (meta["namespace"], meta["name"], runtime.kind, runtime.name)
        logger.log(level, "%s/%s: whether there is a %s %s was not looked up: %s", *about, error)
        return
    wanted = _PREFIXES[runtime.kind] + runtime.name
    if wanted not in found:
        [other] = _PREFIXES.keys() - {runtime.kind}
        raise InvalidSpec.of("runtime", wanted, await _allowed(client, list(found), other, meta["namespace"]))
    for name in sorted(set(runtime.init_containers) - trainjob.init_containers(found[wanted])):
        field = "code" if name == SYNC_CONTAINER else "init_containers"
        raise InvalidSpec(f"{field}: the runtime {wanted} has no init container {name}, and a job can add none")


async def _allowed(client: Client, found: list[str], other: str, namespace: str) -> str:
    try:
        found = sorted([*found, *await _listed(client, other, namespace)])
    except ClusterError as error:
        return f"{one_of(found) if found else 'there is none of that kind'}; {error}"
    return one_of(found) if found else "there are none yet: have one made"


async def _listed(client: Client, kind: str, namespace: str) -> dict[str, Manifest]:
    found = await client.items(paths.runtimes(kind, namespace))
    return {_PREFIXES[kind] + each["metadata"]["name"]: each for each in found}
