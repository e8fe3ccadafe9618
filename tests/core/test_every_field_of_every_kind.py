"""Test that no kind drops a field silently: a field that is set changes the object or is refused by name.

`same_fields` has a value for each field. A new field of jobs fails here until it has a value there.
"""

from __future__ import annotations

import copy
import json
import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.identity import SPEC_HASH_ANNOTATION
from ptjob_provider.core.kinds import PYTORCHJOB, PYTORCHTRAININGJOB, TRAINJOB
from ptjob_provider.core.kinds.pod_template import find_container
from ptjob_provider.core.spec import JOB_FIELDS, ElasticPolicy, Installation, TrainingJob
from ptjob_provider.core.spec.job import RoleFields, job_template
from ptjob_provider.core.spec.places import places
from rows import each_row
from same_fields import FIELDS, OWNER, rendered

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.identity import Manifest

OLD = "the old operator's PyTorchJob"
OLD_FIELDS = frozenset(
    {"pytorchReplicaSpecs", "cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit"}
)
KINDS = {"PyTorchJob": PYTORCHJOB, "TrainJob": TRAINJOB, "PyTorchTrainingJob": PYTORCHTRAININGJOB, OLD: PYTORCHJOB}

PARTS: Mapping[str, Mapping[str, Any]] = {
    "elastic_policy": {
        "min_replicas": 2,
        "max_replicas": 2,
        "max_restarts": 4,
        "rdzv_backend": "etcd",
        "rdzv_host": "meet",
        "rdzv_port": 1234,
        "rdzv_id": "us",
        "rdzv_conf": {"timeout": "30"},
        "standalone": True,
    },
    "master": {
        "image": "chief:1",
        "command": ["torchrun", "chief.py"],
        "args": ["--chief"],
        "env": {"A": "b"},
        "cpu": "3",
        "memory": "3Gi",
        "gpus": 3,
        "container_resources": {"limits": {"rdma/hca": 3}},
        "node_selector": {"a": "b"},
    },
}
WHOLE: Mapping[str, Mapping[str, Mapping[str, Any]]] = {**PARTS, "worker": PARTS["master"]}
CHOICES = {"kind", "manifest"}
"""They select the object and are not part of it."""

WITHOUT: Mapping[str, Mapping[str, Any]] = {
    "gpu_resource": {"gpus": 1},
    "shared_memory": {"shared_memory": "1Gi"},
    "volume_mounts": {"volumes": [{"name": "tmp", "emptyDir": {}}]},
}
"""Arguments without a field, so that only the field itself changes the object."""


def every() -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Return each field, and each part of a field, with arguments without it and with it."""
    found: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
    for field in JOB_FIELDS:
        if field not in CHOICES | set(WHOLE):
            given = {name: part for name, part in FIELDS[field].items() if name != "kind"}
            found.append((field, dict(WITHOUT.get(field, {})), given))
    for field, values in WHOLE.items():
        lacks: dict[str, Any] = {field: {}} if field == "elastic_policy" else {}
        found += [(f"{field}.{name}", lacks, {field: {name: part}}) for name, part in values.items()]
    return found


POD = {"spec": {"containers": [{"name": "pytorch", "image": "own:1", "args": ["main.py", "--fast"]}]}}
NAMED = {"metadata": {"name": "own"}}
OPERATORS = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    **NAMED,
    "spec": {"pytorchReplicaSpecs": {role: {"replicas": 1, "template": POD} for role in ("Master", "Worker")}},
}
OWN: Mapping[str, Manifest] = {
    "PyTorchJob": OPERATORS,
    OLD: OPERATORS,
    "TrainJob": {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        **NAMED,
        "spec": {"runtimeRef": {"name": "mine"}, "trainer": {"numNodes": 2, "image": "own:1"}},
    },
    "PyTorchTrainingJob": {
        "apiVersion": "batch.tensorstack.dev/v1beta1",
        "kind": "PyTorchTrainingJob",
        **NAMED,
        "spec": {
            "torchrunConfig": {"enabled": True, "procPerNode": "4"},
            "replicaSpecs": [{"type": "worker", "replicas": 2, "template": POD}],
        },
    },
}


def submitted(kind: str, arguments: Mapping[str, Any]) -> Manifest:
    """Return the submitted object without its hash."""
    found = copy.deepcopy(rendered(TrainingJob.parse(kind="PyTorchJob" if kind == OLD else kind, **arguments)))
    del found["metadata"]["annotations"][SPEC_HASH_ANNOTATION]
    return KINDS[kind].converted_for(found, OLD_FIELDS if kind == OLD else frozenset())


def refused(kind: str, arguments: Mapping[str, Any]) -> str:
    """Return the name of the field that the kind does not support, or "" if it supports all."""
    try:
        submitted(kind, arguments)
    except InvalidSpec as error:
        return re.split(r"[.:\[]", str(error))[0]
    return ""


def check(kind: str, field: str, lacks: dict[str, Any], has: dict[str, Any]) -> None:
    name = refused(kind, has)
    assert name in {"", field.partition(".")[0]}
    assert name or json.dumps(submitted(kind, has)) != json.dumps(submitted(kind, lacks)), f"{field} changes nothing"


@each_row(("field", "lacks", "has"), every())
@each_row("kind", KINDS)
def test_a_field_changes_the_object_or_is_refused_by_its_name(
    kind: str, field: str, lacks: dict[str, Any], has: dict[str, Any]
) -> None:
    usual = {"name": "digits", "image": "digits:1", "workers": 2, "command": ["torchrun", "main.py"]}

    check(kind, field, {**usual, **lacks}, {**usual, **has})


@each_row(("field", "lacks", "has"), every())
@each_row("kind", KINDS)
def test_a_field_over_a_manifest_changes_the_object_or_is_refused_by_its_name(
    kind: str, field: str, lacks: dict[str, Any], has: dict[str, Any]
) -> None:
    usual = {"manifest": OWN[kind]}

    check(kind, field, {**usual, **lacks}, {**usual, **has})


def values_at(part: Any, path: str) -> list[Any]:
    """Return the values at a declared path; none where the path ends before."""
    name, _, rest = path.partition(".")
    items = part if isinstance(part, list) else part.values()
    inner = items if name == "*" else [part[name]] if name in part else []
    return [value for each in inner for value in (values_at(each, rest) if rest else [each])]


def parts_of(kind: str, made: Manifest) -> dict[str, list[Any]]:
    """Return each owner of places in an object: the spec, and pods and training containers of all roles."""
    templates = list(KINDS[kind].templates(made))
    containers = [find_container(each, KINDS[kind].CONTAINER) for each in templates]
    return {kind: [made["spec"]], "pod": [each["spec"] for each in templates], "container": containers}


@each_row(("field", "lacks", "has"), every())
@each_row("kind", [kind for kind in KINDS if kind != OLD])
def test_a_field_stands_where_its_declaration_says(
    kind: str, field: str, lacks: dict[str, Any], has: dict[str, Any]
) -> None:
    """T9k's torchrun takes a command as arguments, so that only their place changes."""
    usual = {"name": "digits", "image": "digits:1", "workers": 2, "command": ["torchrun", "main.py"]}
    whole, _, part = field.partition(".")
    cls, name = (ElasticPolicy, part) if whole == "elastic_policy" else (TrainingJob, part or whole)
    if refused(kind, {**usual, **has}):
        return

    without, made = (parts_of(kind, submitted(kind, {**usual, **each})) for each in (lacks, has))

    for owner in made:
        place = places(cls, owner).get(name)
        if place is not None and (kind, name) != ("PyTorchTrainingJob", "command"):
            before, after = ([values_at(each, place.path) for each in parts[owner]] for parts in (without, made))
            assert before != after, f"{field} changes nothing at {place.path}"


@each_row("kind", KINDS)
@each_row(("given", "sizes"), [("1Gi", ["1Gi"]), (False, [])])
def test_the_installations_shared_memory_is_kept(kind: str, given: str | bool, sizes: list[str]) -> None:  # noqa: FBT001 - a field's value
    """The default size is for jobs without a size of their own."""
    template = job_template({"shared_memory": given}, field="job")
    job = TrainingJob.parse(name="digits", image="digits:1", kind="PyTorchJob" if kind == OLD else kind)

    made = KINDS[kind].render(job, owner=OWNER, attempt=1, installation=Installation(template=template))

    [template_of_pods] = KINDS[kind].templates(made.manifest)
    volumes = template_of_pods["spec"].get("volumes") or []
    assert [each["emptyDir"]["sizeLimit"] for each in volumes] == sizes


def test_every_part_of_a_field_is_tried() -> None:
    """A new part of a role or of an elastic policy fails here until it has a value."""
    assert set(PARTS["elastic_policy"]) == {each.name for each in fields(ElasticPolicy)}
    assert set(PARTS["master"]) == {each.name for each in fields(RoleFields)}
