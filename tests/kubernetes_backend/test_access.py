"""Tests of access to the API server: each kind of credential and its renewal, certificates."""

from __future__ import annotations

import json
import stat
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from cluster.tenants import service_account
from ptjob_provider.core.errors import ClusterError, ClusterUnavailable, PermissionDenied
from ptjob_provider.core.kubernetes import ClusterConfig
from ptjob_provider.core.kubernetes.client import paths
from ptjob_provider.core.kubernetes.client.http import shared_client
from rbac import rules

if TYPE_CHECKING:
    from pathlib import Path

    from cluster.boot import Cluster


class Door:
    """A service account's kubeconfig, and the changes that tests make to it."""

    def __init__(self, cluster: Cluster, namespace: str, folder: Path) -> None:
        self.namespace = namespace
        self.folder = folder
        self.runs = folder / "runs"
        file = service_account(cluster, namespace, rules())
        self._document: dict[str, Any] = yaml.safe_load(file.read_text())
        self.token = str(self._document["users"][0]["user"]["token"])

    def config(self, *, user: dict[str, Any] | None = None, **server: Any) -> ClusterConfig:
        """Return the configuration, with another user or other settings of the server."""
        document = json.loads(json.dumps(self._document))
        if user is not None:
            document["users"][0]["user"] = user
        document["clusters"][0]["cluster"] |= server
        path = self.folder / "kubeconfig"
        path.write_text(json.dumps(document))
        return ClusterConfig(kube_config_path=str(path), attempts=2)

    def plugin(self) -> dict[str, Any]:
        """Return a user whose exec plugin returns the token with an expiry time in the past."""
        status = {"token": self.token, "expirationTimestamp": "2020-01-01T00:00:00Z"}
        answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
        script = self.folder / "plugin"
        script.write_text(f"#!/bin/sh\necho run >> {self.runs}\necho '{json.dumps(answer)}'\n")
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(script), "args": ["-"]}}

    def count(self) -> int:
        """Return how many times the plugin has run."""
        return len(self.runs.read_text().splitlines())


@pytest.fixture
def door(cluster: Cluster, namespace: str, tmp_path: Path) -> Door:
    """Return a service account's access to the cluster."""
    return Door(cluster, namespace, tmp_path)


async def ask(config: ClusterConfig, namespace: str) -> None:
    async with shared_client(config) as client:
        await client.get(paths.pods(namespace))


async def test_a_token_that_is_about_to_end_is_renewed_before_it_is_refused(door: Door) -> None:
    """No request gets a 401, nor does the plugin run for each: its clock may be wrong, and the token still valid."""
    config = door.config(user=door.plugin())

    async with shared_client(config) as client:
        for _ in range(5):
            await client.get(paths.pods(door.namespace))
        assert door.count() == 1
        client._credentials._loaded_at -= 60  # as if the first token had been in use for a minute
        await client.get(paths.pods(door.namespace))

    assert door.count() == 2


async def test_the_message_of_a_failing_plugin_is_in_the_error(door: Door) -> None:
    """A retry may help: the cloud behind the plugin may have been down."""
    failing = door.folder / "failing"
    failing.write_text("#!/bin/sh\necho 'no such profile' >&2; exit 3\n")
    failing.chmod(0o700)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(failing)}}

    with pytest.raises(ClusterUnavailable, match=r"returned 3.*no such profile"):
        await ask(door.config(user=user), door.namespace)


async def test_a_token_file_is_read_again_after_it_was_replaced(door: Door) -> None:
    """A kubelet replaces a pod's token in this way."""
    file = door.folder / "token"
    file.write_text("worn-out\n")
    config = door.config(user={"tokenFile": str(file)})

    async with shared_client(config) as client:
        with pytest.raises(PermissionDenied):
            await client.get(paths.pods(door.namespace))
        file.write_text(door.token + "\n")

        assert (await client.get(paths.pods(door.namespace)))["items"] == []


async def test_a_server_whose_certificate_is_not_trusted_is_not_asked_again(door: Door, cluster: Cluster) -> None:
    """The error names the failed check; without verification, the request succeeds."""
    other = cluster.layout.home / "pki" / "front-proxy-ca.crt"
    ca = other if other.exists() else None
    config = door.config(**({"certificate-authority": str(ca)} if ca else {}), **{"certificate-authority-data": ""})

    with pytest.raises(ClusterError, match="certificate verify failed") as raised:
        await ask(config, door.namespace)
    trusting = ClusterConfig(kube_config_path=config.kube_config_path, verify_ssl=False)
    await ask(trusting, door.namespace)

    assert not raised.value.retryable
