"""The documented addition to Kubeflow's stock Role: all that is missing, and nothing else."""

from __future__ import annotations

import rbac
from kfp_cluster.stock_role import ENGINE, RUNNER, STOCK, binding, documented, grants, of_accounts


def wanted() -> set[tuple[str, str, str]]:
    """Return all that the documented Role of the package grants."""
    return {
        (group, resource, verb)
        for rule in rbac.rules()
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_addition_is_what_the_stock_role_lacks() -> None:
    """Whoever may run pipelines has to be given this, and need not be given more."""
    lacking = {each for each in wanted() if not grants(STOCK, *each)}

    added = {each for each in wanted() if grants(documented(), *each)}

    assert lacking == added == {("", "events", "list")}
    assert [rule["verbs"] for rule in documented()] == [["list"]]


def test_the_addition_is_bound_to_the_account_of_the_steps() -> None:
    """As Kubeflow names it where there is one namespace for all."""
    assert [subject["name"] for subject in binding()["subjects"]] == [RUNNER]


def test_an_account_of_ones_own_may_do_all_that_a_step_does() -> None:
    """What Argo and Kubeflow do in each step's name, what a training does, and what the stock Role has beyond that."""
    notes = ("", "pods", "patch")

    wants = {*wanted(), *ENGINE, notes}

    assert {each for each in wants if not grants(of_accounts(), *each)} == set()
