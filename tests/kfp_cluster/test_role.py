"""Tests of the documented addition to Kubeflow's stock Role: it grants exactly what is missing."""

from __future__ import annotations

import yaml

import rbac
from kfp_cluster.stock_role import ENGINE, RUNNER, STOCK, binding, documented, grants, of_accounts

OF_JOB = {"create", "get", "list", "watch", "patch", "delete"}


def wanted() -> set[tuple[str, str, str]]:
    """Return all permissions in the package's documented Role."""
    return {
        (group, resource, verb)
        for rule in rbac.rules()
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_addition_is_what_the_stock_role_lacks() -> None:
    lacking = {each for each in wanted() if not grants(STOCK, *each)}

    added = {each for each in wanted() if grants(documented(), *each)}

    assert lacking == added == {("", "events", "list")}
    assert [rule["verbs"] for rule in documented()] == [["list"]]


def test_the_addition_is_bound_to_the_account_of_the_steps() -> None:
    """Kubeflow's name for it in an installation with a single namespace."""
    assert [subject["name"] for subject in binding()["subjects"]] == [RUNNER]


def test_the_stock_account_can_get_the_rights_of_other_components() -> None:
    """The page's overlay, as Kustomize reads it: it binds every Role to the account of the steps."""
    overlay = yaml.safe_load(
        (rbac.ROOT / "deploy" / "README.md").read_text().rpartition("```yaml\n")[2].split("```")[0]
    )
    components = [folder.removeprefix("../") for folder in overlay["components"]]
    ((change,),) = [yaml.safe_load(patch["patch"]) for patch in overlay["patches"]]
    subjects = [
        each["subjects"] for folder in components for each in rbac.objects_in(folder) if each["kind"] == "RoleBinding"
    ]
    rules = [*STOCK, *(rule for folder in components for rule in rbac.rules_in(folder))]

    assert overlay["patches"][0]["target"] == {"kind": "RoleBinding"}
    assert change == {"op": "replace", "path": "/subjects/0/name", "value": RUNNER}
    assert [len(each) for each in subjects] == [1] * len(components)
    assert grants(rules, "", "secrets", "create")
    assert {verb for verb in OF_JOB if grants(rules, "trainer.kubeflow.org", "trainjobs", verb)} == OF_JOB


def test_an_account_of_ones_own_may_do_all_that_a_step_does() -> None:
    """The requests of Argo and Kubeflow in each step's name, those of a training, and the rest of the stock Role."""
    notes = ("", "pods", "patch")

    wants = {*wanted(), *ENGINE, notes}

    assert {each for each in wants if not grants(of_accounts(), *each)} == set()
