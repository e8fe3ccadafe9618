"""Read what the cluster serves of a kind from `/openapi/v3`, which every authenticated user may read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptjob_provider.core import kinds
from ptjob_provider.core.errors import ClusterError, KindNotServed, UnsupportedByBackend

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kubernetes.client import Client

_ROOT = "/openapi/v3"
_NOT_HERE = "but not in this namespace"


async def spec_fields(client: Client, manifest: Manifest) -> frozenset[str]:
    """Return the names of the fields below `spec` in the served version of a manifest's kind.

    The old PyTorch operator's CRD, which Arena still installs, has the same version and no `runPolicy`. Empty: the
    cluster does not serve the kind.
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
    """Return the error for a create that was answered with 404."""
    text = await missing(client, manifest)
    return UnsupportedByBackend(text) if text.endswith(_NOT_HERE) else KindNotServed(text)


async def missing(client: Client, manifest: Manifest) -> str:
    """Return what the cluster does not serve, for a create that was answered with 404."""
    kind = f"{manifest['kind']} of {manifest['apiVersion']}"
    try:
        fields = await spec_fields(client, manifest)
    except ClusterError as error:
        return f"kind: the cluster does not serve {kind} ({error})"
    if fields:
        return f"kind: the cluster serves {kind}, {_NOT_HERE}"
    operator = kinds.KINDS.get(manifest["kind"], kinds.DEFAULT).OPERATOR
    return f"kind: the cluster does not serve {kind}; install {operator}, or ask who runs the cluster"


def _spec_of(document: Mapping[str, Any], manifest: Manifest) -> Mapping[str, Any]:
    group, _, version = manifest["apiVersion"].rpartition("/")
    wanted = {"group": group, "version": version, "kind": manifest["kind"]}
    schemas = ((document.get("components") or {}).get("schemas") or {}).values()
    found = (each for each in schemas if wanted in (each.get("x-kubernetes-group-version-kind") or ()))
    schema: Mapping[str, Any] = next(found, {})
    spec: Mapping[str, Any] = (schema.get("properties") or {}).get("spec") or {}
    return spec
