"""The API server's schema of a PyTorchJob, and which of its fields a manifest sets.

A field is a path of steps: the names of properties, `[]` for an item of a list and `{}` for a value of a map.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ptjob_provider.core.kubernetes.client.http import Client

Field = tuple[str, ...]

DOCUMENT = "/openapi/v3/apis/kubeflow.org/v1"
ITEM, VALUE = "[]", "{}"

_KIND = "org.kubeflow.v1.PyTorchJob"
_UNREACHABLE = {"apiVersion", "kind", "status"}
"""`apiVersion` and `kind` have only one value, and the operator writes `status`."""
_SERVER_SET = {
    *("creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation"),
    *("managedFields", "resourceVersion", "selfLink", "uid"),
}
_ZERO: Mapping[str, Any] = {"object": {}, "array": [], "string": "", "integer": 0, "boolean": False}


async def pytorchjob_schema(client: Client) -> dict[str, Any]:
    """Return the schema of the reachable fields: those that a user may write and the API server keeps."""
    schemas = (await client.get(DOCUMENT))["components"]["schemas"]
    whole = _resolved(schemas[_KIND], schemas)
    kept = {name: part for name, part in whole["properties"].items() if name not in _UNREACHABLE}
    meta = kept["metadata"]["properties"]
    kept["metadata"]["properties"] = {name: part for name, part in meta.items() if name not in _SERVER_SET}
    return {**whole, "properties": kept}


def fields(schema: Mapping[str, Any], path: Field = ()) -> Iterator[Field]:
    """Yield every field that the schema has."""
    for name, part in (schema.get("properties") or {}).items():
        yield (*path, name)
        yield from fields(part, (*path, name))
    for step, inner in _inside(schema):
        yield from fields(inner, (*path, step))


def set_fields(value: Any, schema: Mapping[str, Any], path: Field = ()) -> Iterator[Field]:
    """Yield every field whose value in a manifest differs from leaving it out."""
    for name, part in (schema.get("properties") or {}).items():
        given = value.get(name)
        if given is not None and given != part.get("default", _ZERO.get(part.get("type", ""))):
            yield (*path, name)
            yield from set_fields(given, part, (*path, name))
    for step, inner in _inside(schema):
        for each in value if step == ITEM else value.values():
            yield from set_fields(each, inner, (*path, step))


def _inside(schema: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(step, schema[key]) for step, key in ((ITEM, "items"), (VALUE, "additionalProperties")) if schema.get(key)]


def _resolved(schema: Any, schemas: Mapping[str, Any]) -> Any:
    """Return the schema with its references resolved; a recursive one is not part of a PyTorchJob."""
    if isinstance(schema, list):
        return [_resolved(each, schemas) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _resolved(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    found = {name: _resolved(part, schemas) for name, part in schema.items()}
    for part in found.pop("allOf", ()) if isinstance(found.get("allOf"), list) else ():
        found = {**part, **found}
    return found
