"""What `ptjob doctor` says of a cluster, from what it has seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ptjob_provider.core import kinds
from ptjob_provider.core.kubernetes.checkup import (
    NEEDED,
    SHOWING,
    USEFUL,
    kind_check,
    operator_check,
    permission_checks,
    storage_check,
)

DOCS = Path(__file__).parents[2] / "docs"


def rules(file: str, kind: str) -> set[tuple[str, str, str]]:
    """Return every (group, resource, verb) that a documented role gives."""
    documents = yaml.safe_load_all((DOCS / file).read_text())
    return {
        (group, resource, verb)
        for document in documents
        if document["kind"] == kind
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_what_is_needed_is_what_the_documented_role_gives() -> None:
    """So that the advice to have it bound is enough."""
    assert {(right.group, right.resource, right.verb) for right in NEEDED} == rules("kubernetes-role.yaml", "Role")


@pytest.mark.parametrize(("kind", "is_cluster_wide"), [("Role", False), ("ClusterRole", True)])
def test_what_is_useful_is_what_the_optional_roles_give(kind: str, *, is_cluster_wide: bool) -> None:
    """`pods/exec get` is the create of clusters older than 1.35, which ask for the web socket's GET."""
    given = rules("kubernetes-optional.yaml", kind) - {("", "pods/exec", "get")}

    assert {
        (right.group, right.resource, right.verb) for right in USEFUL if right.is_cluster_wide == is_cluster_wide
    } == given


def test_what_a_tensorboard_takes_is_what_its_role_gives() -> None:
    """One verb for each resource stands for all that its Role gives of it, and the advice names its file."""
    given = rules("kubernetes-tensorboard-role.yaml", "Role")
    asked = {(right.group, right.resource, right.verb) for right in SHOWING}
    checks = permission_checks("ml", {right: right not in SHOWING for right in (*NEEDED, *USEFUL, *SHOWING)})

    assert asked <= given
    assert {part[:2] for part in asked} == {part[:2] for part in given}
    assert [check.said for check in checks if check.is_good is None] == [
        *("missing: deployments create", "missing: services create", "missing: pods/portforward create")
    ]
    assert checks[-1].advice == "if it is wanted: the Role of docs/kubernetes-tensorboard-role.yaml"


def test_missing_rights_are_named_in_one_line_and_useful_ones_each() -> None:
    """Whoever asks the administrator has everything in one sentence."""
    missing = {right for right in NEEDED if right.resource == "pods/log"} | {USEFUL[0], USEFUL[4]}
    allowed = {right: right not in missing for right in (*NEEDED, *USEFUL, *SHOWING)}

    needed, *useful = permission_checks("ml", allowed)
    complete = permission_checks("ml", dict.fromkeys(allowed, True))

    assert (needed.is_good, needed.said) == (False, "missing: pods/log get")
    assert needed.advice == "have the Role of docs/kubernetes-role.yaml bound to you"
    assert useful[0].said == "missing: configmaps create"
    assert useful[4].said == "missing: nodes list in the whole cluster"
    assert useful[4].advice == "if it is wanted: the ClusterRole of docs/kubernetes-optional.yaml"
    assert all(check.is_good for check in complete)


def test_a_kind_is_served_or_not_or_by_the_old_operators_crd() -> None:
    """Only the default kind has to be there."""
    job = kinds.DEFAULT

    assert kind_check(job, {"pytorchReplicaSpecs", "runPolicy"}).is_good is True
    assert kind_check(job, {"pytorchReplicaSpecs"}).said.startswith("served by the CRD of the old PyTorch operator")
    assert (kind_check(job, ()).is_good, kind_check(job, ()).said) == (False, "not served")


def test_the_operator_is_ready_or_not_or_not_to_be_seen() -> None:
    """Jobs get no pods without it."""
    pod: dict[str, Any] = {"metadata": {"name": "op", "namespace": "kubeflow"}, "status": {"conditions": []}}
    ready = {**pod, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}

    assert operator_check([]).is_good is None
    assert (operator_check([pod]).is_good, operator_check([pod]).said) == (False, "kubeflow/op is not ready")
    assert (operator_check([pod, ready]).is_good, operator_check([ready]).said) == (True, "kubeflow/op is ready")


def test_storage_classes_are_named_with_their_default() -> None:
    """Without one a claim has to say its class."""
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    classes = [{"metadata": {"name": "fast"}}, {"metadata": {"name": "slow", "annotations": default}}]

    assert storage_check(classes).said == "fast, slow; slow is the default"
    assert storage_check(classes[:1]).said == "fast; none is the default"
    assert (storage_check([]).is_good, storage_check([]).said) == (None, "none")
