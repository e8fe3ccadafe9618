"""What Kubeflow's stock Role `pipeline-runner` grants of what a step uses, and what a step needs beyond it."""

from __future__ import annotations

from typing import Any

from rbac import COMPONENTS, objects_in, rules_in, rules_of

MISSING = f"{COMPONENTS}/pipelines-step"
RUNNER = "pipeline-runner"
"""The service account of every step of a run, and its Role."""

STOCK: list[dict[str, Any]] = [
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "watch", "list"]},
    {"apiGroups": [""], "resources": ["persistentvolumes", "persistentvolumeclaims"], "verbs": ["*"]},
    {"apiGroups": [""], "resources": ["pods", "pods/exec", "pods/log", "services"], "verbs": ["*"]},
    {"apiGroups": ["kubeflow.org"], "resources": ["*"], "verbs": ["*"]},
]
"""Kubeflow Pipelines 2.17's, without the groups that no step of ours asks: Argo's, apps, batch, Seldon's, snapshots."""


ENGINE = {
    ("argoproj.io", "workflowtaskresults", "create"),
    ("argoproj.io", "workflowtaskresults", "patch"),
    ("", "configmaps", "get"),
    ("", "secrets", "get"),
}
"""What Argo's first process and Kubeflow's launcher ask for in the name of every step, as seen with 2.17.0."""


def of_accounts() -> list[dict[str, Any]]:
    """Return the rules of the account of the base, with what it needs for pipelines."""
    return rules_of("pipelines-account")


def documented() -> list[dict[str, Any]]:
    """Return the rules of the Role that the documentation adds to the stock one."""
    return rules_in(MISSING)


def binding() -> dict[str, Any]:
    """Return the documented RoleBinding."""
    _, found = objects_in(MISSING)
    return found


def grants(rules: list[dict[str, Any]], group: str, resource: str, verb: str) -> bool:
    """Whether one of the rules allows it."""
    return any(
        group in rule["apiGroups"] and {resource, "*"} & set(rule["resources"]) and {verb, "*"} & set(rule["verbs"])
        for rule in rules
    )
