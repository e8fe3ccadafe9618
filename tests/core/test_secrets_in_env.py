"""Tests of finding the Secrets that the programs of a job get as variables."""

from __future__ import annotations

from typing import Any

from ptjob_provider.core.kinds import secrets_in_env


def variable(name: str, key: str) -> dict[str, Any]:
    return {"name": key.upper(), "valueFrom": {"secretKeyRef": {"name": name, "key": key}}}


def job(master: dict[str, Any], worker: dict[str, Any]) -> dict[str, Any]:
    roles = {"Master": {"template": {"spec": master}}, "Worker": {"template": {"spec": worker}}}
    return {"spec": {"pytorchReplicaSpecs": roles}}


def test_the_secrets_of_every_container_and_role_are_listed() -> None:
    """Including init containers; other variables are not secret."""
    plain = [{"name": "A", "value": "b"}, {"name": "P", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    master = {"initContainers": [{"env": [variable("hub", "user")]}], "containers": [{"env": plain}]}
    worker = {"containers": [{"env": [variable("hub", "token"), variable("store", "key")]}, {}]}

    assert secrets_in_env(job(master, worker)) == {"hub": {"user", "token"}, "store": {"key"}}


def test_a_whole_secret_has_all_its_keys() -> None:
    whole = {"envFrom": [{"secretRef": {"name": "hub"}}, {"configMapRef": {"name": "settings"}}]}
    one = {"env": [variable("hub", "token")]}

    assert secrets_in_env(job({"containers": [whole, one]}, {"containers": []})) == {"hub": None}
    assert secrets_in_env(job({"containers": [one, whole]}, {"containers": []})) == {"hub": None}
