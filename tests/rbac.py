"""The Roles in `deploy/`, as the tests give them to a service account: complete, or without one verb."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
BASE = "deploy/base"
COMPONENTS = "deploy/components"
FOLDERS = [BASE, *sorted(f"{COMPONENTS}/{folder.name}" for folder in (ROOT / COMPONENTS).iterdir())]
"""The base and each component, as the advice about a missing permission names them."""


def objects_in(folder: str) -> list[dict[str, Any]]:
    """Return the objects of the base or of a component."""
    files = yaml.safe_load((ROOT / folder / "kustomization.yaml").read_text())["resources"]
    return [found for file in files for found in yaml.safe_load_all((ROOT / folder / file).read_text())]


def rules_in(folder: str, kind: str = "Role") -> list[dict[str, Any]]:
    """Return the rules of the Roles, or of the ClusterRoles, of the base or of a component."""
    return [rule for found in objects_in(folder) if found["kind"] == kind for rule in found["rules"]]


def rules_of(*components: str) -> list[dict[str, Any]]:
    """Return the rules of the base and of components."""
    return [*rules(), *(rule for name in components for rule in rules_in(f"{COMPONENTS}/{name}"))]


def rules() -> list[dict[str, Any]]:
    return rules_in(BASE)


def rules_of_kinds() -> list[dict[str, Any]]:
    """Return the rules of the base and of the other kinds."""
    return rules_of("kinds")


def runtime_rules() -> list[dict[str, Any]]:
    """Return the rules of the ClusterRole for runtimes."""
    return rules_in(f"{COMPONENTS}/runtimes", "ClusterRole")


def optional_rules() -> list[dict[str, Any]]:
    """Return the rules that jobs do not need: for Arena, for files in claims, for usage."""
    return [rule for name in ("arena", "data", "usage") for rule in rules_in(f"{COMPONENTS}/{name}")]


def cluster_rules() -> list[dict[str, Any]]:
    """Return the rules of the ClusterRole for administrators."""
    return rules_in(f"{COMPONENTS}/cluster-view", "ClusterRole")


def tensorboard_rules() -> list[dict[str, Any]]:
    """Return the rules that a TensorBoard needs."""
    return rules_in(f"{COMPONENTS}/tensorboard")


def verbs() -> list[tuple[str, str]]:
    """Return each resource and verb in the rules of the base."""
    return [(rule["resources"][0], verb) for rule in rules() for verb in rule["verbs"]]


def rules_without(resource: str, verb: str, *, of: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rules without one verb of one resource."""
    kept = [
        {**rule, "verbs": [each for each in rule["verbs"] if (rule["resources"], each) != ([resource], verb)]}
        for rule in of
    ]
    return [rule for rule in kept if rule["verbs"]]
