from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.odd_values import ODD
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.kinds import PYTORCHJOB
from ptjob_provider.core.kinds.pytorchjob import validate
from ptjob_provider.core.manifest import load_manifest
from recorded import DATA, recorded
from rendered import render
from rows import each_row

META = ("metadata",)
POLICY = ("spec", "runPolicy")
PROCESSES = ("spec", "nprocPerNode")
ROLES = ("spec", "pytorchReplicaSpecs")
MASTER, WORKER = (*ROLES, "Master"), (*ROLES, "Worker")
POD = (*MASTER, "template", "spec")
CONTAINER = (*POD, "containers", 0)
RESOURCES = (*CONTAINER, "resources")
TRAINER = {"name": "pytorch", "image": "i"}
MOUNT = {"name": "a", "mountPath": "/a"}
GONE = object()
TAKEN = [f"manifest-{story}" for story in ("args-only", "anchors", "rich", "elastic", "every-corner", "shared-memory")]


def changed(story: str, path: tuple[str | int, ...], value: object) -> dict[str, Any]:
    """Return a recorded manifest with one value set or removed."""
    manifest = copy.deepcopy(recorded(story))
    place: Any = manifest
    for part in path[:-1]:
        place = place[part]
    if value is GONE:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return manifest


@each_row("story", TAKEN)
def test_a_manifest_that_kubectl_takes_is_taken(story: str) -> None:
    validate(load_manifest(DATA / f"{story}.yaml"))


@each_row(
    ("path", "value", "message"),
    [
        (META, GONE, "metadata: None is not allowed; required: a map"),
        ((*META, "labels"), ["a"], "metadata.labels: ['a'] is not allowed; allowed: a map"),
        ((*META, "name"), 7, "metadata.name: 7 is not allowed; allowed: a text"),
        ((*META, "name"), "Digits", "metadata.name: 'Digits' is not allowed; allowed: lower-case"),
        ((*META, "name"), "d" * 55, "at most 54 characters"),
        (ROLES, {}, "spec.pytorchReplicaSpecs: {}"),
        ((*ROLES, "worker"), {}, "pytorchReplicaSpecs.worker: there is no such field; did you mean Worker?"),
        (POLICY, "Running", "spec.runPolicy: 'Running' is not allowed; allowed: a map"),
        (POLICY, {"cleanPodPolicy": "Runing"}, "allowed: Running, All, None"),
        (POLICY, {"managedBy": "me"}, "spec.runPolicy.managedBy: 'me' is not allowed; allowed: kubeflow.org"),
        (PROCESSES, 2, 'spec.nprocPerNode: 2 is not allowed; allowed: a text: "auto"'),
        (PROCESSES, "all", "spec.nprocPerNode: 'all'"),
        (MASTER, None, "spec.pytorchReplicaSpecs.Master: None"),
        ((*MASTER, "replicas"), GONE, "Master.replicas: None is not allowed; allowed: 1; it must be written"),
        ((*MASTER, "replicas"), 2, "Master.replicas: 2"),
        ((*WORKER, "replicas"), 0, "Worker.replicas: 0 is not allowed; allowed: a whole number, at least 1"),
        (
            (*WORKER, "replicas"),
            10_001,
            "Worker.replicas: 10001 is not allowed; allowed: a whole number, at least 1, at most",
        ),
        ((*WORKER, "restartPolicy"), "Nerver", "Worker.restartPolicy: 'Nerver' is not allowed; allowed: Never"),
        ((*POD, "volumes"), {"a": 1}, "Master.template.spec.volumes: {'a': 1} is not allowed; allowed: a list"),
        ((*POD, "volumes"), [{"emptyDir": {}}], "Master.template.spec.volumes[0].name: None"),
        ((*POD, "containers"), [], "Master.template.spec.containers: [] is not allowed; required: a list"),
        ((*POD, "initContainers"), ["x"], "Master.template.spec.initContainers[0]: 'x' is not allowed; allowed: a map"),
        ((*CONTAINER, "image"), GONE, "Master.template.spec.containers[0].image: None is not allowed; required"),
        ((*CONTAINER, "image"), 7, "containers[0].image: 7 is not allowed; allowed: a text; quote it"),
        ((*CONTAINER, "name"), "train", "containers: ['train'] is not allowed; one of them must be named pytorch"),
        ((*CONTAINER, "volumeMounts"), [MOUNT], "volumeMounts[0].name: 'a' is not allowed; the pod has no"),
        (
            POD,
            {"volumes": [{"name": "data"}], "containers": [{**TRAINER, "volumeMounts": [MOUNT]}]},
            "volumeMounts[0].name: 'a' is not allowed; allowed: data",
        ),
        (RESOURCES, "big", "containers[0].resources: 'big'"),
        ((*RESOURCES, "limits"), {"cpu": "x"}, "containers[0].resources.limits.cpu: 'x'"),
        ((*RESOURCES, "limits"), {"cpu": 0.5}, "cpu: 0.5 is not allowed; allowed: a text or a whole number; write"),
        (
            RESOURCES,
            {"requests": {"cpu": 2}, "limits": {"cpu": "1500m"}},
            "containers[0].resources.requests.cpu: '2' is not allowed; allowed: at most its limit, 1500m",
        ),
        # what the API server checks alike for all kinds; the labels of a pod template only when it is too late
        (
            (*META, "labels"),
            {"p" * 254 + "/c": "x"},
            "is not allowed; allowed: a name such as team or example.com/team",
        ),
        ((*META, "labels"), {"team": 7}, "metadata.labels.team: 7 is not allowed; allowed: a text; quote it"),
        ((*MASTER, "template", "metadata", "labels"), {"team": "-"}, "Master.template.metadata.labels.team: '-'"),
    ],
)
def test_a_manifest_that_a_server_or_the_operator_cannot_handle_is_refused(
    path: tuple[str | int, ...], value: object, message: str
) -> None:
    """The text begins with the field's path in the manifest and gives what is allowed."""
    with pytest.raises(InvalidSpec) as error:
        validate(changed("manifest-args-only", path, value))

    assert message in str(error.value)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (PROCESSES, "2", "spec.elasticPolicy.nProcPerNode: 1 is not allowed; leave it out: spec.nprocPerNode is set"),
        (("spec", "elasticPolicy", "rdzvBackend"), "zeus", "spec.elasticPolicy.rdzvBackend: 'zeus'"),
        (("spec", "elasticPolicy", "maxReplicas"), "3", "spec.elasticPolicy.maxReplicas: '3' is not allowed"),
    ],
)
def test_an_elastic_manifest_has_rules_of_its_own(path: tuple[str, ...], value: object, message: str) -> None:
    """Workers are required, the processes per node are set once, and the rendezvous back-end must exist."""
    with pytest.raises(InvalidSpec) as error:
        validate(changed("manifest-elastic", path, value))

    assert message in str(error.value)


@pytest.mark.parametrize(("replicas", "least"), [(9, 1), (2, 3)])
def test_an_elastic_job_starts_within_its_limits_unless_it_is_scaled(replicas: int, least: int) -> None:
    """It would wait for ever for more workers, or leave some out; by its metrics the operator scales it at once."""
    manifest = changed("manifest-elastic", (*WORKER, "replicas"), replicas)
    manifest["spec"]["elasticPolicy"]["minReplicas"] = least
    validate(manifest)
    del manifest["spec"]["elasticPolicy"]["metrics"]

    with pytest.raises(InvalidSpec, match=rf"Worker\.replicas: {replicas} is not allowed; allowed: {least} .* to 4"):
        validate(manifest)


@each_row(
    ("policy", "workers", "others", "allowed"),
    [
        ({"minReplicas": 3, "maxReplicas": 3}, 2, "Master", ""),
        ({"maxReplicas": 4}, 4, "Master", "4 (`minReplicas`) to 4 (`maxReplicas`) pods, a Master included"),
        ({"maxReplicas": 4}, 2, "", "4 (`minReplicas`) to 4 (`maxReplicas`)"),
        ({"minReplicas": 1}, 3, "", "1 (`minReplicas`) to 1 (`maxReplicas`)"),
        ({"minReplicas": 2}, 2, "", ""),
        ({}, 2, "Master", ""),
    ],
)
def test_the_limits_of_an_elastic_job_are_those_of_the_operator(
    policy: dict[str, int], workers: int, others: str, allowed: str
) -> None:
    """The operator gives them to a Master, too, and sets the one that is missing to the other (setElasticPolicy)."""
    manifest = changed("manifest-args-only", (*WORKER, "replicas"), workers)
    manifest["spec"]["elasticPolicy"] = policy
    if not others:
        del manifest["spec"]["pytorchReplicaSpecs"]["Master"]
    if not allowed:
        validate(manifest)
        return

    with pytest.raises(InvalidSpec) as error:
        validate(manifest)
    assert f"Worker.replicas: {workers} is not allowed; allowed: {allowed}" in str(error.value)


def test_a_gang_is_not_larger_than_the_job() -> None:
    """Its pods would wait for ever, as when only the number of workers was changed; without a gang nothing reads it."""
    manifest = changed("manifest-args-only", POLICY, {"schedulingPolicy": {"minAvailable": 2}})
    pod = manifest["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    pod["schedulerName"] = "volcano"
    validate(manifest)
    manifest["spec"]["runPolicy"]["schedulingPolicy"]["minAvailable"] = 3
    pod["schedulerName"] = "default-scheduler"
    validate(manifest)
    pod["schedulerName"] = "volcano"

    with pytest.raises(InvalidSpec, match=r"schedulingPolicy\.minAvailable: 3 is not allowed; allowed: at most 2"):
        validate(manifest)


def test_an_elastic_policy_needs_workers() -> None:
    manifest = changed("manifest-args-only", WORKER, GONE)
    manifest["spec"]["elasticPolicy"] = {}

    with pytest.raises(InvalidSpec, match=r"Worker: None is not allowed; required by spec\.elasticPolicy"):
        validate(manifest)


def test_metadata_that_the_api_server_takes_is_taken() -> None:
    """Annotation keys in any case, and labels without a value."""
    manifest = changed("manifest-args-only", (*META, "annotations"), {"AWS.example/Key_1": "x", "empty": None})
    manifest["metadata"]["labels"] = {"a.b-c/d_e.F": "", "x": "y" * 63}

    validate(manifest)


def test_cores_in_any_unit_that_the_api_server_takes_are_taken() -> None:
    """Only the field `cpu` is stricter: there, `4Gi` is a mistake."""
    validate(changed("manifest-args-only", RESOURCES, {"limits": {"cpu": "4Gi"}, "requests": {"cpu": "1k"}}))


def test_keys_of_a_free_map_are_not_validated() -> None:
    """A user's own keys, such as a driver's attributes, may have the names of fields."""
    driver = {"driver": "csi.example", "volumeAttributes": {"sizeLimit": "big", "port": "none"}}
    volumes = [{"name": "a", "csi": driver}, {"name": "b", "csi": driver}]
    manifest = changed("manifest-args-only", (*POD, "volumes"), volumes)
    manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["nodeSelector"] = {"env": "x", "ports": "y"}

    validate(manifest)


def test_null_counts_as_absent() -> None:
    """`labels:` with nothing after it is common in files, and kubectl accepts it."""
    manifest = changed("manifest-args-only", ("metadata", "labels"), None)
    manifest["spec"] |= {"runPolicy": None, "elasticPolicy": None, "nprocPerNode": None}
    container = manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
    container |= {"env": None, "volumeMounts": None, "resources": None, "workingDir": None}

    validate(manifest)


FIELDS: dict[str, Any] = {
    "name": "digits",
    "workers": 3,
    "gpus": 1,
    "gang": True,
    "shared_memory": "1Gi",
    "labels": {"a": "b"},
    "env": {"A": "b"},
    "volumes": ["team-data/x:/models"],
    "cpu": 2,
    "nproc_per_node": 2,
    "annotations": {"a": "b"},
    "elastic_policy": {"max_replicas": 9},
    "node_selector": {"a": "b"},
    "model": "pvc://team-data/models/digits/m.pt",
    "tfevents": "/data/logs",
}


def _places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, part in parts for place in _places(part, (*path, key)))]


PLACES = _places(recorded("manifest-rich"))[1:]


@given(st.sampled_from(PLACES), ODD, st.sets(st.sampled_from(sorted(FIELDS))))
def test_nothing_but_an_invalid_spec_comes_out_of_a_broken_manifest(
    path: tuple[str | int, ...], value: object, names: set[str]
) -> None:
    """With any value at any place, and anything on top, it is rendered or refused by name."""
    broken = changed("manifest-rich", path, value)
    try:
        rendered = render(manifest=broken, **{name: FIELDS[name] for name in names}).manifest
    except InvalidSpec as error:
        assert ": " in str(error)  # noqa: PT017 - both outcomes are right
        return

    validate(rendered)
    assert PYTORCHJOB.replicas(rendered)
