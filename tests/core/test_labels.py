"""Tests of a job's labels: the user's arrive as they were written, and those that identify a job are ours."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptjob_provider.core import kinds
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.identity import Owner, owner_labels, owner_selector
from ptjob_provider.core.spec import Installation, TrainingJob, job_template
from recorded import OWNER, recorded
from rows import each_row

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kinds import Rendered

KINDS = tuple(kinds.KINDS)
WRITTEN = {"app": "exclusive-bert", "release": "nightly", "submitted_by": "continuous-integration"}
OTHER_TASK = Owner(
    instance="other", ids={"dag_id": "nightly", "task_id": "fit"}, labels={"try_number": "3", "max_tries": "4"}
)
PERSON = Owner(instance="command-line", ids={"submitted_by": "ann", "submission": "1"}, labels={})


def of_kind(kind: str, labels: dict[str, Any], *, of_pods: dict[str, Any] | None = None) -> Manifest:
    """Return a manifest of the kind with these labels on the job and on its pods."""
    name = kinds.named(kind).CONTAINER
    pod = {"spec": {"containers": [{"name": name, "image": "bert:1"}]}}
    meta = {"labels": labels if of_pods is None else of_pods}
    patch = {"name": name, "template": {"spec": {"template": {"metadata": meta}}}}
    runtime = {"template": {"spec": {"replicatedJobs": [patch]}}}
    roles = {role: {"replicas": 1, "template": {**pod, "metadata": meta}} for role in ("Master", "Worker")}
    specs: dict[str, Manifest] = {
        "PyTorchJob": {"pytorchReplicaSpecs": roles},
        "TrainJob": {
            "runtimeRef": {"name": "torch-distributed"},
            "trainer": {"image": "bert:1"},
            "runtimePatches": [{"manager": "example.com/me", "trainingRuntimeSpec": runtime}],
        },
        "PyTorchTrainingJob": {"replicaSpecs": [{"replicas": 2, "template": {**pod, "metadata": meta}}]},
    }
    version = kinds.named(kind).API_VERSION
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "bert", "labels": labels}, "spec": specs[kind]}


OF_OPERATORS = {
    "PyTorchJob": {"training.kubeflow.org/job-name", "training.kubeflow.org/replica-type", "pytorch-job-name"},
    "TrainJob": {"jobset.sigs.k8s.io/jobset-name", "batch.kubernetes.io/job-name", "job-name", "controller-uid"},
    "PyTorchTrainingJob": {"tensorstack.dev/owner-name"},
}


def rendered(
    *, owner: Owner = OWNER, attempt: int = 1, template: dict[str, Any] | None = None, **given: Any
) -> Rendered:
    job = TrainingJob.parse(**given)
    installation = Installation(template=job_template(template or {}, field="job_template"))
    return kinds.requested_kind(job).render(job, owner=owner, attempt=attempt, installation=installation)


def carried(job: Manifest) -> list[dict[str, str]]:
    """Return the labels of the job, and of each role's pods."""
    templates = kinds.kind_of(job).templates(job)
    return [each["metadata"]["labels"] for each in (job, *templates)]


def typed(kind: str) -> dict[str, Any]:
    return {"name": "bert", "kind": kind, "image": "bert:1", "workers": 2}


# what arrives


@pytest.mark.parametrize("owner", [OWNER, PERSON])
def test_a_public_manifests_labels_arrive_as_they_were_written(owner: Owner) -> None:
    """Its affinity selects its pods by `app`, so another value of that label would leave them unscheduled."""
    found = rendered(manifest=recorded("manifest-exclusive"), owner=owner).manifest

    assert len(carried(found)) == 3
    for labels in carried(found):
        assert labels.items() >= WRITTEN.items()
        assert labels.items() >= owner_selector(owner).items() - {("submitted_by", "ann")}


@each_row(
    ("kind", "fields"),
    product(
        KINDS,
        (
            {"labels": WRITTEN},
            {"template": {"labels": WRITTEN}},
            {"manifest": WRITTEN},
            {"manifest": {}, "labels": WRITTEN},
            {"manifest": {}, "template": {"labels": WRITTEN}},
        ),
    ),
)
def test_each_way_to_give_labels_gives_them_to_the_job_and_its_pods(kind: str, fields: dict[str, Any]) -> None:
    job = {"manifest": of_kind(kind, fields["manifest"])} if "manifest" in fields else typed(kind)

    found = rendered(**{**fields, **job}).manifest

    for labels in carried(found):
        assert labels.items() >= {**owner_selector(OWNER), **WRITTEN}.items()


def test_a_pod_templates_labels_arrive_on_the_pods() -> None:
    template = {"metadata": {"labels": WRITTEN}, "spec": {}}
    for kind in KINDS:
        job, *pods = carried(rendered(**typed(kind), pod_template=template).manifest)

        assert job["app"] == "pytorchjob"
        assert all(labels.items() >= WRITTEN.items() for labels in pods)


KEYS = st.sampled_from(
    [
        *("app", "release", "submitted_by", "submission", "team", "example.com/team", "app.kubernetes.io/name"),
        *("dag_id", "try_number", "map_index", "pytorch_job_name", "ptjob-provider/managed", "ptjob-provider/else"),
        *("training.kubeflow.org/job-name", "jobset.sigs.k8s.io/jobset-name", "batch.kubernetes.io/job-name"),
        *("tensorstack.dev/owner-name", "pytorch-job-name", "kueue.x-k8s.io/queue-name", "max_tries", "job-name"),
    ]
)
LABELS = st.dictionaries(KEYS, st.sampled_from(["", "1", "true", "mine", "pytorchjob"]), max_size=4)


@given(kind=st.sampled_from(KINDS), of_job=LABELS, of_pods=LABELS, owner=st.sampled_from([OWNER, PERSON]))
def test_every_label_arrives_unless_it_is_refused_by_name(
    kind: str, of_job: dict[str, str], of_pods: dict[str, str], owner: Owner
) -> None:
    """And the labels by which jobs and pods are found are there, whatever the user wrote."""
    ours = owner_labels("bert", owner, 1)
    identity = ours.keys() - {"app", "release", "submitted_by", "submission"}
    wrong = [key for part in (of_job, of_pods) for key in part if key in identity and part[key] != ours[key]]
    wrong += [key for part in (of_job, of_pods) for key in part if key.startswith("ptjob-provider/")]
    wrong += [key for key in of_pods if key in OF_OPERATORS[kind]]
    job = TrainingJob.parse(manifest=of_kind(kind, of_job, of_pods=of_pods))

    try:
        labelled = carried(kinds.named(kind).render(job, owner=owner, attempt=1, exact_name=True).manifest)
    except InvalidSpec as error:
        labelled, refused = [], error.field.partition("labels.")[2]
    else:
        refused = ""

    assert refused in wrong if wrong else not refused
    for labels, written in zip(labelled, (of_job, of_pods, of_pods), strict=False):
        assert labels == {**ours, **written}


# what is refused


@each_row(
    ("kind", "key", "message"),
    [
        *product(KINDS, ("dag_id", "try_number"), ("is not allowed; allowed: '",)),
        *product(KINDS, ("ptjob-provider/managed", "ptjob-provider/anything"), ("is not allowed; leave it out",)),
        ("PyTorchJob", "pytorch_job_name", "is not allowed; allowed: 'bert-"),
    ],
)
def test_a_label_by_which_jobs_are_found_is_refused_with_its_place_and_value(kind: str, key: str, message: str) -> None:
    """On the job, on its pods, and in every other place; the retry of another task's value would find another job."""
    label = {key: "mine"}
    by_place: dict[str, dict[str, Any]] = {
        f"metadata.labels.{key}: 'mine' ": {"manifest": of_kind(kind, label, of_pods={})},
        f"template.metadata.labels.{key}: 'mine' ": {"manifest": of_kind(kind, {}, of_pods=label)},
        f"labels.{key}: 'mine' ": {**typed(kind), "labels": label},
        f"job_template.labels.{key}: 'mine' ": {**typed(kind), "template": {"labels": label}},
    }

    for place, fields in by_place.items():
        with pytest.raises(InvalidSpec) as error:
            rendered(**fields)

        assert place in str(error.value)
        assert message in str(error.value)


@each_row(("kind", "key"), [(kind, key) for kind, keys in OF_OPERATORS.items() for key in keys])
def test_a_label_that_the_operator_writes_on_pods_is_refused_there(kind: str, key: str) -> None:
    """Operators replace it, or cannot create the pods; the pods are found by it."""
    with pytest.raises(InvalidSpec, match=rf"template\.metadata\.labels\.{key}: 'x' is not allowed; leave it out"):
        rendered(manifest=of_kind(kind, {}, of_pods={key: "x"}))
    with pytest.raises(InvalidSpec, match=rf"^labels\.{key}: 'x' is not allowed; leave it out"):
        rendered(**typed(kind), labels={key: "x"})

    assert carried(rendered(manifest=of_kind(kind, {key: "x"}, of_pods={})).manifest)[0][key] == "x"


@each_row(("kind", "part", "wrong"), product(KINDS, ("labels", "annotations"), ("x", ["app"])))
def test_labels_that_are_no_map_are_refused(kind: str, part: str, wrong: Any) -> None:
    manifest = of_kind(kind, {})

    with pytest.raises(InvalidSpec, match=rf"^metadata\.{part}: .* is not allowed; allowed: a map"):
        rendered(manifest={**manifest, "metadata": {"name": "bert", part: wrong}})


# a manifest of this package


@each_row(("kind", "owner"), product(KINDS, (PERSON, OTHER_TASK)))
def test_the_labels_of_a_rendered_job_are_not_taken_for_its_users(kind: str, owner: Owner) -> None:
    """Its file is submitted under another name, by somebody else, and again by a retry; a label of the user's stays."""
    file = rendered(**typed(kind), labels={"team": "vision", "app": "bert"}, owner=owner).manifest

    found = rendered(manifest=file, name="other", attempt=2)

    expected = owner_labels(found.manifest["metadata"]["name"], OWNER, 2) | {"team": "vision", "app": "bert"}
    assert carried(found.manifest) == [expected] * len(carried(found.manifest))
