from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.odd_values import json_of
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.identity import PREFIX
from ptjob_provider.core.kinds import PYTORCHJOB
from ptjob_provider.core.manifest import dump_manifest, load_manifest
from ptjob_provider.core.spec import TrainingJob
from recorded import DATA, OUR_VARIABLES, OWNER, recorded, without_additions
from rendered import IMAGE, pod, render, variables
from rows import each_row
from same_fields import FIELDS

GOLDEN = DATA / "golden"
MANIFESTS = ["manifest-args-only", "manifest-rich", "manifest-elastic", "manifest-exclusive"]
ALONE = {"name", "kind", "runtime", "manifest", "elastic_policy", "code"}
"""Fields that choose the object, or that have tests of whole manifests of their own."""
EVERYTHING: dict[str, Any] = {
    **{name: value for field, given in FIELDS.items() if field not in ALONE for name, value in given.items()},
    "name": "digits",
    "container_resources": {"limits": {"rdma/hca": 1}},
    "shared_memory": "16Gi",
    "volumes": ["datasets/digits:/data:ro", "runs:/runs", {"name": "tmp", "emptyDir": {}}],
    "model": "/runs/digits/model.pt",
    "checkpoints": "../runs/digits/checkpoints",
}
ELASTIC = {"name": "grows", "image": IMAGE, **FIELDS["elastic_policy"]}


def without_overridden(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return a recorded manifest without what rendering replaces: its status, and the variables of the provider."""
    for replica in manifest["spec"]["pytorchReplicaSpecs"].values():
        for each in replica["template"]["spec"]["containers"]:
            if "env" in each:
                each["env"] = [variable for variable in each["env"] if variable["name"] not in OUR_VARIABLES]
    return {name: part for name, part in manifest.items() if name != "status"}


# whole manifests


@each_row(
    ("story", "values"),
    [
        ("typed-smallest", {"name": "digits", "image": IMAGE}),
        ("typed-everything", EVERYTHING),
        ("typed-elastic", ELASTIC),
        ("manifest-args-only", {"manifest": DATA / "manifest-args-only.yaml"}),
        (
            "manifest-rich-with-outputs",
            {"manifest": DATA / "manifest-rich.yaml", "model": "model.pt", "tfevents": "pvc://logs/run"},
        ),
        ("manifest-args-only-overridden", {"manifest": DATA / "manifest-args-only.yaml", **EVERYTHING}),
    ],
)
def test_the_rendered_manifest_is_the_golden_one(story: str, values: dict[str, Any]) -> None:
    """`dry_run` prints exactly the golden file (rewrite it with PTJOB_WRITE_GOLDEN=1, then read the diff)."""
    text = dump_manifest(render(**values).manifest)

    if os.environ.get("PTJOB_WRITE_GOLDEN"):
        (GOLDEN / f"{story}.yaml").write_text(text)
    assert text == (GOLDEN / f"{story}.yaml").read_text()
    assert load_manifest(text) == render(**values).manifest


@pytest.mark.parametrize("story", MANIFESTS)
def test_a_users_manifest_gets_the_permitted_additions_and_nothing_else(story: str) -> None:
    """Without the provider's labels, annotations, variables and log policies it is the user's manifest, unchanged."""
    asked = without_overridden(recorded(story))

    rendered = render(manifest=recorded(story)).manifest

    assert without_additions(rendered, asked) == asked


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
EXTRA = st.dictionaries(TEXTS.map(lambda text: f"x-{text}"), json_of(TEXTS), max_size=3)


@given(st.lists(EXTRA, min_size=9, max_size=9))
def test_no_field_that_nobody_here_knows_is_ever_lost(extras: list[dict[str, Any]]) -> None:
    asked = without_overridden(recorded("manifest-rich"))
    master = asked["spec"]["pytorchReplicaSpecs"]["Master"]
    levels = [asked, asked["metadata"], asked["spec"], asked["spec"]["runPolicy"], master, master["template"]]
    pod_spec = master["template"]["spec"]
    levels += [pod_spec, pod_spec["containers"][1], pod_spec["initContainers"][0]]
    for level, extra in zip(levels, extras, strict=True):
        level.update(extra)

    rendered = render(manifest=asked).manifest

    assert without_additions(rendered, asked) == asked


def test_fields_that_only_the_api_server_writes_are_left_out() -> None:
    """A manifest copied from a cluster brings no status, uid or history into a new job; labels and owners stay."""
    copied = recorded("pytorchjob-succeeded")
    copied["metadata"]["managedFields"] = [{"manager": "kubectl"}]
    copied["metadata"]["deletionTimestamp"] = "2026-11-20T08:00:00Z"
    ours = ("record", "report", "first-started-at", "tensorboard")
    copied["metadata"]["annotations"] = {"team": "vision", **{f"{PREFIX}/{name}": "{}" for name in ours}}
    copied["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "name": "launcher", "uid": "1"}]

    rendered = render(manifest=copied).manifest

    assert "status" not in rendered
    assert set(rendered["metadata"]) == {"name", "namespace", "labels", "annotations", "ownerReferences"}
    kept = {"team", *(f"{PREFIX}/{name}" for name in ("owner", "spec-hash", "outputs", "tensorboard"))}
    assert set(rendered["metadata"]["annotations"]) == kept


def test_rendering_changes_nothing_that_it_was_given() -> None:
    job = TrainingJob.parse(manifest=recorded("manifest-rich"), model="pvc://logs/x", cpu=2, labels={"a": "b"})

    PYTORCHJOB.render(job, owner=OWNER, attempt=1)

    assert job.manifest == recorded("manifest-rich")


def written(roles: dict[str, tuple[dict[str, Any], str | None]], **spec: Any) -> dict[str, Any]:
    """Return a manifest: for each role its fields, and the restart policy that its pods' template has."""
    containers = [{"name": "pytorch", "image": IMAGE}]
    replicas = {
        role: {"replicas": 1, **given, "template": {"spec": {"restartPolicy": policy, "containers": containers}}}
        for role, (given, policy) in roles.items()
    }
    return {**recorded("manifest-args-only"), "spec": {"pytorchReplicaSpecs": replicas, **spec}}


WORKERS = {"Worker": ({"replicas": 2}, None)}


@each_row(
    ("manifest", "fields"),
    [
        (written({"Master": ({"restartPolicy": "ExitCode"}, "Never")}), []),
        (written({"Master": ({}, "OnFailure")}), []),
        (written({"Master": ({}, "Never")}), ["spec.pytorchReplicaSpecs.Master.template.spec.restartPolicy"]),
        (
            written({"Master": ({}, None), "Worker": ({"restartPolicy": "OnFailure"}, "Never")}),
            ["spec.pytorchReplicaSpecs.Worker.template.spec.restartPolicy"],
        ),
        (written(WORKERS), ["spec.pytorchReplicaSpecs"]),
        (written(WORKERS, elasticPolicy={"rdzvBackend": "c10d"}), []),
        (written({"Master": ({}, None), **WORKERS}), []),
    ],
)
def test_fields_of_a_manifest_that_the_operator_overrides_are_named(
    manifest: dict[str, Any], fields: list[str]
) -> None:
    """Its pods get the role's restart policy, and workers without a master are told nothing of each other."""
    made = render(manifest=manifest)

    assert [each.partition(":")[0] for each in made.changes] == fields


# names, labels, annotations


@each_row(
    ("meta", "values", "name", "namespace"),
    [
        ({"name": "theirs", "namespace": "research"}, {}, "theirs", "research"),
        ({"name": "theirs", "namespace": "research"}, {"name": "ours", "namespace": "ml"}, "ours", "ml"),
        ({"generateName": "theirs-"}, {}, "theirs", "default"),
    ],
)
def test_typed_names_win_over_the_manifests(
    meta: dict[str, Any], values: dict[str, Any], name: str, namespace: str
) -> None:
    """Name and namespace come from the typed field, else from the manifest; the default namespace is `default`."""
    manifest = {**recorded("manifest-args-only"), "metadata": meta}

    rendered = render(manifest=manifest, exact_name=True, **values).manifest

    assert (rendered["metadata"]["name"], rendered["metadata"]["namespace"]) == (name, namespace)


@pytest.mark.parametrize(
    ("meta", "values", "message"),
    [
        ({"labels": {"a": "b"}}, {}, "manifest.metadata.name: None is not allowed; required, unless `name` is given"),
        ({"name": "d" * 55}, {"exact_name": True, "workers": 101}, "metadata.name: 'ddd"),
    ],
)
def test_a_name_that_no_pod_could_have_is_refused(meta: dict[str, Any], values: dict[str, Any], message: str) -> None:
    """A name is required, a DNS label, and short enough for the last replica's service."""
    with pytest.raises(InvalidSpec) as error:
        render(manifest={**recorded("manifest-args-only"), "metadata": meta}, **values)

    assert message in str(error.value)


@each_row(
    ("change", "same"),
    [
        ({"attempt": 2}, True),
        ({"owner": replace(OWNER, labels={"try_number": "4"})}, True),
        ({"name": "other"}, True),
        ({"labels": {"try": "4"}, "annotations": {"note": "x"}}, True),
        ({"image": "registry.example/digits:2"}, False),
        ({"workers": 2}, False),
        ({"model": "/runs/other.pt"}, False),
        ({"env": {"LR": "0.2"}}, False),
    ],
)
def test_the_hash_is_of_what_was_asked_for(change: dict[str, Any], same: bool) -> None:  # noqa: FBT001
    """Names, labels and attempts do not change it; an image, a number of pods, an output or a variable does."""
    common = {"volumes": ["runs:/runs"], "model": "/runs/model.pt"}

    assert (render(**common).spec_hash == render(**{**common, **change}).spec_hash) is same


# the environment and the log tails


def test_variables_say_where_to_write_and_which_attempt_it_is() -> None:
    """In each replica, before the user's own variables, so that those can refer to them."""
    common = {"volumes": ["runs:/runs"], "model": "/runs/m.pt", "tfevents": "/runs/logs", "checkpoints": "/runs/ckpt"}

    rendered = render(**common, workers=2, attempt=2, env={"LOGS": "$(PTJOB_TFEVENTS_DIR)"}).manifest

    expected = {
        "PTJOB_ATTEMPT": "2",
        "PTJOB_MODEL_PATH": "/runs/m.pt",
        "PTJOB_TFEVENTS_DIR": "/runs/logs",
        "PTJOB_CHECKPOINT_DIR": "/runs/ckpt",
        "LOGS": "$(PTJOB_TFEVENTS_DIR)",
    }
    assert [list(variables(rendered, role).items()) for role in ("Master", "Worker")] == [list(expected.items())] * 2


def test_the_users_own_variables_of_our_names_are_overridden_where_we_say_something() -> None:
    """PTJOB_ATTEMPT is always overridden; PTJOB_MODEL_PATH is the user's if no model is declared."""
    mine = {"PTJOB_ATTEMPT": "99", "PTJOB_MODEL_PATH": "/mine"}

    without = render(env=mine).manifest
    declared = render(env=mine, volumes=["runs:/runs"], model="/runs/m.pt").manifest

    assert variables(without) == {"PTJOB_ATTEMPT": "1", "PTJOB_MODEL_PATH": "/mine"}
    assert variables(declared) == {"PTJOB_ATTEMPT": "1", "PTJOB_MODEL_PATH": "/runs/m.pt"}


def test_a_container_keeps_its_last_lines_unless_it_says_otherwise() -> None:
    """For all containers of all pods, including init containers and sidecars; an explicit policy stays."""
    rendered = render(manifest=recorded("manifest-rich")).manifest

    policies = {
        each["name"]: each["terminationMessagePolicy"]
        for each in (*pod(rendered)["initContainers"], *pod(rendered)["containers"])
    }
    tail = "FallbackToLogsOnError"
    assert policies == {"fetch": "File", "warm": tail, "metrics": tail, "pytorch": tail}


@each_row("name", ["MASTER_ADDR", "WORLD_SIZE", "RANK", "PET_NNODES"])
@each_row("role", ["", "master.", "worker."])
def test_a_typed_variable_that_the_operator_replaces_is_refused(name: str, role: str) -> None:
    """It would be ignored silently, because the operator's variables come after the user's."""
    env = {"env": {name: "1"}}
    values = {role.rstrip("."): env} if role else env

    with pytest.raises(InvalidSpec, match=f"{role}env.{name}: training-operator sets it"):
        render(workers=2, **values)


def test_an_owner_in_the_cluster_is_one_of_the_jobs_owners() -> None:
    """The job is deleted with it; other owners of the manifest stay, and the specification is the same."""
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "team", "uid": "uid-1"}
    step = {"apiVersion": "v1", "kind": "Pod", "name": "run-step", "uid": "uid-2", "blockOwnerDeletion": False}
    manifest = recorded("manifest-args-only")
    manifest["metadata"]["ownerReferences"] = [other]
    owned = replace(OWNER, reference=step)

    assert render(manifest=manifest, owner=owned).manifest["metadata"]["ownerReferences"] == [other, step]
    assert render(owner=owned).manifest["metadata"]["ownerReferences"] == [step]
    assert "ownerReferences" not in render().manifest["metadata"]
    assert render(owner=owned).spec_hash == render().spec_hash
