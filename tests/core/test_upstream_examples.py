"""training-operator's own examples and its CRD, field by field, without a cluster.

Skipped without Go; PTJOB_REQUIRE_GO=1 makes that a failure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

import upstream
from ptjob_provider.core.kinds import PYTORCHJOB
from ptjob_provider.core.spec import TrainingJob
from recorded import DATA, OWNER, without_additions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

upstream.skip_without_go()


@pytest.fixture(scope="module")
def examples() -> dict[Path, dict[str, Any]]:
    """Return every PyTorchJob of the examples by its file."""
    return upstream.pytorchjobs()


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    """Return what the API server allows in a PyTorchJob."""
    return upstream.crd_schema()


def violations(value: Any, schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Yield what the API server would refuse with fieldValidation=Strict: unknown fields, wrong types, missing ones."""
    types = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
    wanted = (int, str) if schema.get("x-kubernetes-int-or-string") else types[schema["type"]]
    if not isinstance(value, wanted):
        yield f"{path}: {value!r} is no {schema.get('type', 'number or text')}"
    elif isinstance(value, dict):
        yield from (f"{path}.{name}: missing" for name in schema.get("required", []) if name not in value)
        yield from _violations_of_fields(value, schema, path)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from violations(item, schema["items"], f"{path}[{index}]")


def _violations_of_fields(value: dict[str, Any], schema: dict[str, Any], path: str) -> Iterator[str]:
    known, free = schema.get("properties", {}), schema.get("additionalProperties")
    if not known and not free:
        return  # metadata, which the API server knows without the CRD
    for name, part in value.items():
        if name in known or free:
            yield from violations(part, known.get(name) or free, f"{path}.{name}")
        else:
            yield f"{path}.{name}: unknown"


def test_the_examples_are_all_there(examples: dict[Path, dict[str, Any]]) -> None:
    """A change of the module's layout is seen here, not passed over in silence."""
    names = {job["metadata"]["name"] for job in examples.values()}

    assert len(examples) == 9
    assert {"pytorch-simple", "torchrun-cpu", "pytorch-dist-mnist-nccl", "elastic-example-imagenet"} <= names


def test_every_example_keeps_its_meaning(examples: dict[Path, dict[str, Any]]) -> None:
    """Rendered from its file, each example is itself and the permitted additions, field by field."""
    for file, given in examples.items():
        rendered = PYTORCHJOB.render(TrainingJob.parse(manifest=file), owner=OWNER, attempt=1)

        assert without_additions(rendered.manifest, given) == given, file
        assert rendered.manifest["metadata"]["name"].startswith(given["metadata"]["name"][:40]), file
        assert rendered.manifest["metadata"]["namespace"] == given["metadata"].get("namespace", "default"), file


def test_every_rendered_example_is_what_the_crd_allows(
    examples: dict[Path, dict[str, Any]], schema: dict[str, Any]
) -> None:
    """Nothing that we add is unknown to the API server or of a wrong type."""
    for file in examples:
        rendered = PYTORCHJOB.render(TrainingJob.parse(manifest=file), owner=OWNER, attempt=1)

        assert list(violations(rendered.manifest, schema)) == []


@pytest.mark.parametrize("story", ["typed-smallest", "typed-everything", "typed-elastic"])
def test_what_typed_fields_become_is_what_the_crd_allows(story: str, schema: dict[str, Any]) -> None:
    """Every field that typed fields can set is one of the CRD's, with its type."""
    manifest = yaml.safe_load((DATA / "golden" / f"{story}.yaml").read_text())

    assert list(violations(manifest, schema)) == []


def test_the_check_against_the_crd_can_fail(schema: dict[str, Any]) -> None:
    """An unknown field, a wrong type and a missing field are seen."""
    manifest = yaml.safe_load((DATA / "golden" / "typed-smallest.yaml").read_text())
    manifest["spec"]["nprocPerNode"] = 2
    manifest["spec"]["runPolicy"]["ttl"] = 3
    manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"] = {}

    assert list(violations(manifest, schema)) == [
        ".spec.runPolicy.ttl: unknown",
        ".spec.pytorchReplicaSpecs.Master.template.spec.containers: missing",
        ".spec.nprocPerNode: 2 is no string",
    ]
