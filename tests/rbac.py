"""The documented Roles, as the tests give them to a service account: whole, or with one verb taken away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

DOCS = Path(__file__).parent.parent / "docs"
OF_KINDS = "kubernetes-role-kinds.yaml"
OPTIONAL = "kubernetes-optional.yaml"


def rules_in(file: str, kind: str = "Role") -> list[dict[str, Any]]:
    """Return the rules of the Roles, or of the ClusterRoles, in a file of the documentation."""
    documents = yaml.safe_load_all((DOCS / file).read_text())
    return [rule for document in documents if document["kind"] == kind for rule in document["rules"]]


def rules() -> list[dict[str, Any]]:
    """Return the rules of the documented Role."""
    return rules_in("kubernetes-role.yaml")


def rules_of_kinds() -> list[dict[str, Any]]:
    """Return the rules of both documented Roles."""
    return [*rules(), *rules_in(OF_KINDS)]


def runtime_rules() -> list[dict[str, Any]]:
    """Return the rules of the ClusterRole beside them."""
    return rules_in(OF_KINDS, "ClusterRole")


def optional_rules() -> list[dict[str, Any]]:
    """Return the rules of the documented Role that is worth having and not needed."""
    return rules_in(OPTIONAL)


def cluster_rules() -> list[dict[str, Any]]:
    """Return the rules of the documented ClusterRole."""
    return rules_in(OPTIONAL, "ClusterRole")


def tensorboard_rules() -> list[dict[str, Any]]:
    """Return the rules of the documented Role that a TensorBoard takes."""
    return rules_in("kubernetes-tensorboard-role.yaml")


def verbs() -> list[tuple[str, str]]:
    """Return every (resource, verb) of it."""
    return [(rule["resources"][0], verb) for rule in rules() for verb in rule["verbs"]]


def rules_without(resource: str, verb: str, *, of: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return these rules with one verb of one resource taken away."""
    kept = [
        {**rule, "verbs": [each for each in rule["verbs"] if (rule["resources"], each) != ([resource], verb)]}
        for rule in of
    ]
    return [rule for rule in kept if rule["verbs"]]
