"""Read what the cluster serves: the API groups and the fields of a kind, from `/openapi/v3`; check a job's runtime."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from ptjob_provider.core import kinds
from ptjob_provider.core.errors import (
    ClusterError,
    InvalidSpec,
    KindNotServed,
    UnsupportedByBackend,
    one_of,
)
from ptjob_provider.core.kinds import trainer_steps
from ptjob_provider.core.kinds.trainer_steps import OF_CLUSTER, OF_NAMESPACE, RUNTIMES
from ptjob_provider.core.kubernetes.client import paths

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kubernetes.client.http import Client

logger = logging.getLogger(__name__)

_ROOT = "/openapi/v3"


async def spec_fields(client: Client, manifest: Manifest) -> frozenset[str]:
    """Return the names of the fields below `spec` in the served CRD of a manifest's kind; empty if it is not served.

    The fields tell apart CRDs of the same version: that of the old PyTorch operator, which Arena still installs, has no
    `runPolicy`.
    """
    index = await client.get(_ROOT)
    served = (index.get("paths") or {}).get(f"apis/{manifest['apiVersion']}")
    if served is None:
        return frozenset()
    path, _, query = str(served["serverRelativeURL"]).partition("?")
    document = await client.get(path, **dict(part.split("=", 1) for part in query.split("&") if "=" in part))
    return frozenset(_spec_of(document, manifest).get("properties") or ())


async def groups(client: Client) -> frozenset[str]:
    """Return the served API groups."""
    index = await client.get(_ROOT)
    return frozenset(path.split("/")[1] for path in index.get("paths") or () if path.startswith("apis/"))


async def refusal(client: Client, manifest: Manifest) -> UnsupportedByBackend:
    """Return the error for a create that the server has answered with 404."""
    kind = f"{manifest['kind']} of {manifest['apiVersion']}"
    try:
        fields = await spec_fields(client, manifest)
    except ClusterError as error:
        return KindNotServed(f"kind: the cluster does not serve {kind} ({error})")
    if fields:
        return UnsupportedByBackend(f"kind: the cluster serves {kind}, but not in this namespace")
    operator = kinds.KINDS.get(manifest["kind"], kinds.DEFAULT).OPERATOR
    advice = f"install {operator}, or ask the cluster's administrator"
    return KindNotServed(f"kind: the cluster does not serve {kind}; {advice}")


def _spec_of(document: Mapping[str, Any], manifest: Manifest) -> Mapping[str, Any]:
    group, _, version = manifest["apiVersion"].rpartition("/")
    gvk = {"group": group, "version": version, "kind": manifest["kind"]}
    schemas = ((document.get("components") or {}).get("schemas") or {}).values()
    matching = (each for each in schemas if gvk in (each.get("x-kubernetes-group-version-kind") or ()))
    schema: Mapping[str, Any] = next(matching, {})
    spec: Mapping[str, Any] = (schema.get("properties") or {}).get("spec") or {}
    return spec


async def fitted_to_runtime(client: Client, manifest: Manifest) -> Manifest:
    """Return the job, fitted to the steps of its runtime; unchanged if it has none, or if it may not be read.

    Then the server refuses a job whose runtime is missing.

    Raises:
        InvalidSpec: the runtime does not exist, and the text lists the existing ones; or it cannot run the job.
    """
    wanted = trainer_steps.runtime_of(manifest) if manifest["kind"] == kinds.TRAINJOB.KIND else ""
    if not wanted:
        return manifest
    meta = manifest["metadata"]
    kind, other_kind = (OF_NAMESPACE, OF_CLUSTER) if "/" in wanted else (OF_CLUSTER, OF_NAMESPACE)
    try:
        runtimes = await _listed(client, kind, meta["namespace"])
    except ClusterError as error:
        logger.debug("%s/%s: cannot check for the runtime %s: %s", meta["namespace"], meta["name"], wanted, error)
        return manifest
    if wanted not in runtimes:
        allowed = await _allowed(client, list(runtimes), other_kind, meta["namespace"])
        raise InvalidSpec.of("runtime", wanted, allowed)
    found = runtimes[wanted]
    if alone := trainer_steps.given_to_launcher(manifest, found):
        names = (meta["namespace"], meta["name"], ", ".join(alone), wanted)
        logger.warning("%s/%s: Trainer gives %s to the launcher alone; the nodes have what %s says", *names)
    return trainer_steps.fitted(manifest, found)


async def _allowed(client: Client, names: list[str], other_kind: str, namespace: str) -> str:
    try:
        names = sorted([*names, *await _listed(client, other_kind, namespace)])
    except ClusterError as error:
        return f"{one_of(names) if names else 'there is none of that kind'}; {error}"
    return one_of(names) if names else "there are none yet: have one made"


async def _listed(client: Client, kind: str, namespace: str) -> dict[str, Manifest]:
    items = await client.items(paths.runtimes(kind, namespace))
    return {RUNTIMES[kind] + each["metadata"]["name"]: each for each in items}
