"""Permissions of Kubeflow's stock Role `pipeline-runner` that a step uses, and the ones that it needs in addition."""

from __future__ import annotations

from typing import Any

from rbac import COMPONENTS, objects_in, rules_in, rules_of

MISSING = f"{COMPONENTS}/pipelines-step"
RUNNER = "pipeline-runner"
"""The service account of every step of a run, and the name of its Role."""

STOCK: list[dict[str, Any]] = [
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "watch", "list"]},
    {"apiGroups": [""], "resources": ["persistentvolumes", "persistentvolumeclaims"], "verbs": ["*"]},
    {"apiGroups": [""], "resources": ["pods", "pods/exec", "pods/log", "services"], "verbs": ["*"]},
    {"apiGroups": ["kubeflow.org"], "resources": ["*"], "verbs": ["*"]},
]
"""From Kubeflow Pipelines 2.17, without groups that our steps do not use: Argo's, apps, batch, Seldon's, snapshots."""


ENGINE = {
    ("argoproj.io", "workflowtaskresults", "create"),
    ("argoproj.io", "workflowtaskresults", "patch"),
    ("", "configmaps", "get"),
    ("", "secrets", "get"),
}
"""Requests of Argo's first process and Kubeflow's launcher in the name of every step, as observed with 2.17.0."""


def of_accounts() -> list[dict[str, Any]]:
    """Return the rules of the base account with the additions for pipelines."""
    return rules_of("pipelines-account")


def documented() -> list[dict[str, Any]]:
    """Return the rules of the Role that the documentation adds to the stock one."""
    return rules_in(MISSING)


def binding() -> dict[str, Any]:
    _, found = objects_in(MISSING)
    return found


def grants(rules: list[dict[str, Any]], group: str, resource: str, verb: str) -> bool:
    """Return whether one of the rules grants the permission."""
    return any(
        group in rule["apiGroups"] and {resource, "*"} & set(rule["resources"]) and {verb, "*"} & set(rule["verbs"])
        for rule in rules
    )
