"""The documented Role, as the tests give it to a service account: whole, or with one verb taken away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

ROLE = Path(__file__).parent.parent / "docs" / "kubernetes-role.yaml"
ROLE_OF_KINDS = ROLE.with_name("kubernetes-role-kinds.yaml")
OPTIONAL = ROLE.with_name("kubernetes-optional.yaml")
OF_TENSORBOARD = ROLE.with_name("kubernetes-tensorboard-role.yaml")


def rules() -> list[dict[str, Any]]:
    """Return the rules of the documented Role."""
    return list(yaml.safe_load(ROLE.read_text())["rules"])


def rules_of_kinds() -> list[dict[str, Any]]:
    """Return the rules of both documented Roles."""
    return [*rules(), *_rules_in(ROLE_OF_KINDS, "Role")]


def runtime_rules() -> list[dict[str, Any]]:
    """Return the rules of the ClusterRole beside them."""
    return _rules_in(ROLE_OF_KINDS, "ClusterRole")


def optional_rules() -> list[dict[str, Any]]:
    """Return the rules of the documented Role that is worth having and not needed."""
    return _rules_in(OPTIONAL, "Role")


def cluster_rules() -> list[dict[str, Any]]:
    """Return the rules of the documented ClusterRole."""
    return _rules_in(OPTIONAL, "ClusterRole")


def tensorboard_rules() -> list[dict[str, Any]]:
    """Return the rules of the documented Role that a TensorBoard takes."""
    return _rules_in(OF_TENSORBOARD, "Role")


def verbs() -> list[tuple[str, str]]:
    """Return every (resource, verb) of it."""
    return [(rule["resources"][0], verb) for rule in rules() for verb in rule["verbs"]]


def rules_without(resource: str, verb: str) -> list[dict[str, Any]]:
    """Return the rules with one verb of one resource taken away."""
    kept = [
        {**rule, "verbs": [each for each in rule["verbs"] if (rule["resources"][0], each) != (resource, verb)]}
        for rule in rules()
    ]
    return [rule for rule in kept if rule["verbs"]]


def _rules_in(path: Path, kind: str) -> list[dict[str, Any]]:
    documents = yaml.safe_load_all(path.read_text())
    return [rule for document in documents if document["kind"] == kind for rule in document["rules"]]
