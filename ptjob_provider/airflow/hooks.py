"""`PyTorchJobHook`: build a back-end from an Airflow connection and the section `[ptjob]`.

Importing this module loads a Kubernetes client, because the hook is a `KubernetesHook`. DAG files import `connection`
instead, which imports this module only when jobs run on a cluster.
"""

from __future__ import annotations

import asyncio
import json
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

import yaml
from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook
from airflow.sdk import BaseHook
from airflow.sdk.log import mask_secret

from ptjob_provider.airflow import supervisor
from ptjob_provider.airflow.compat import AirflowNotFoundException, answered
from ptjob_provider.airflow.compat_triggers import amask_secret, get_async_connection, get_async_extra_dejson
from ptjob_provider.airflow.config import SECTION, SECTION_OPTIONS, local_config, max_log_streams
from ptjob_provider.airflow.connection import DEFAULT_CONN_ID, ConnectionMissing, local_backend
from ptjob_provider.core.errors import InvalidSpec, UnsupportedByBackend
from ptjob_provider.core.kubernetes import ClusterConfig
from ptjob_provider.core.kubernetes.config import SERVICE_ACCOUNT
from ptjob_provider.core.outputs.location import local_path
from ptjob_provider.core.spec.parsers import boolean, is_unset

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from airflow.sdk import Connection

    from ptjob_provider.core.backend import Backend

_SECRET_KEYS = {
    *("token", "password", "client-key-data"),
    *("id-token", "access-token", "refresh-token", "client-secret", "idp-refresh-token"),
}
_SECRET_NAME = re.compile(r"pass|key|cred", re.IGNORECASE)
"""Matches names of a plugin's variables whose values are masked, besides those that Airflow takes for secrets."""


def secrets_in(kubeconfig: str | None) -> tuple[tuple[str, str | None], ...]:
    """Return the credentials of all users of a kubeconfig, and the environment of their credential plugins.

    A variable has its name, by which Airflow decides whether it is a secret. A text that is not a kubeconfig counts as
    one secret, because its content is unknown.
    """
    try:
        config = yaml.safe_load(kubeconfig) if kubeconfig else {}
    except yaml.YAMLError:
        config = None
    if not isinstance(config, dict):
        return ((str(kubeconfig), None),)
    return tuple(_secrets(config.get("users")))


def _secrets(value: Any) -> Iterator[tuple[str, str | None]]:
    if isinstance(value, list):
        for item in value:
            yield from _secrets(item)
    if not isinstance(value, dict):
        return
    for key, item in value.items():
        if isinstance(item, str) and (key in _SECRET_KEYS or (key == "value" and "name" in value)):
            name = None if key in _SECRET_KEYS else str(value["name"])
            yield item, None if name and _SECRET_NAME.search(name) else name
        yield from _secrets(item)


_POD_NAMESPACE = SERVICE_ACCOUNT / "namespace"


class PyTorchJobHook(KubernetesHook):
    """Connects to the back-end that `[ptjob] backend` names.

    It takes KubernetesHook's arguments and reads its connection with the same precedence: an argument overrides the
    connection's extra; at most one of `in_cluster`, a kubeconfig's path and its content may be set; with none of them,
    a pod uses its service account, and any other process the default kubeconfig. The local back-end never reads a
    connection.
    """

    hook_name = "PyTorch training jobs"

    def __init__(
        self,
        kubernetes_conn_id: str | None = DEFAULT_CONN_ID,
        *,
        in_cluster: bool | None = None,
        config_file: str | None = None,
        cluster_context: str | None = None,
        disable_verify_ssl: bool | None = None,
        disable_tcp_keepalive: bool | None = None,
    ) -> None:
        super().__init__(
            kubernetes_conn_id=kubernetes_conn_id,
            in_cluster=in_cluster,
            config_file=config_file,
            cluster_context=cluster_context,
            disable_verify_ssl=disable_verify_ssl,
            disable_tcp_keepalive=disable_tcp_keepalive,
        )

    @cached_property
    def connection(self) -> Connection | None:
        """The connection. None: the default connection is not defined, or the hook needs no connection."""
        try:
            return BaseHook.get_connection(self.conn_id) if self.conn_id else None
        except AirflowNotFoundException:
            if self.conn_id != self.default_conn_name:
                raise
            return None if supervisor.lacks_connection(self.conn_id) else BaseHook.get_connection(self.conn_id)

    @cached_property
    def conn_extras(self) -> dict[str, Any]:
        """The connection's extras; reading them makes Airflow's logs mask the secrets of a kubeconfig."""
        extras: dict[str, Any] = self.connection.extra_dejson if self.connection else {}
        for secret, name in secrets_in(_kubeconfig(extras)):
            mask_secret(secret, name)
        return extras

    async def read_connection(self) -> None:
        """Read the connection without blocking the event loop, and cache it in the hook.

        Raises:
            ConnectionMissing: the triggerer does not know the connection.
        """
        if not self.conn_id or not supervisor.is_in_triggerer():
            await asyncio.to_thread(lambda: self.conn_extras)
            return
        try:
            self.connection = await answered(get_async_connection(self.conn_id))
        except AirflowNotFoundException:
            raise ConnectionMissing.in_triggerer(self.conn_id) from None
        self.conn_extras = await answered(get_async_extra_dejson(self.connection))
        for secret, name in secrets_in(_kubeconfig(self.conn_extras)):
            await answered(amask_secret(secret, name))

    def backend(self) -> Backend:
        """Return the back-end that `[ptjob] backend` names.

        Raises:
            InvalidSpec: an option of `[ptjob]` or the connection is wrong.
            AirflowNotFoundException: the connection does not exist.
        """
        local = local_config()
        return self.cluster_backend() if local is None else local_backend(local)

    def cluster_backend(self) -> Backend:
        """Return the back-end of the connection's cluster."""
        from ptjob_provider.core.kubernetes import KubernetesBackend  # noqa: PLC0415 - DAG files do not need it

        return KubernetesBackend(self.cluster_config(), probe=SECTION_OPTIONS.probe())

    def cluster_config(self) -> ClusterConfig:
        """Return the configuration to connect to the cluster, from arguments and connection.

        Raises:
            InvalidSpec: they name more than one way to connect, or an extra is invalid.
        """
        given = {
            "in_cluster": self._switch("in_cluster"),
            "kube_config_path": self._text("kube_config_path", self.config_file),
            "kube_config": _kubeconfig(self.conn_extras),
        }
        streams, interval = max_log_streams(), SECTION_OPTIONS.usage_interval()
        try:
            return ClusterConfig(
                **(given if any(given.values()) else {"in_cluster": _POD_NAMESPACE.is_file()}),
                context=self._text("cluster_context", self.cluster_context),
                verify_ssl=not self._switch("disable_verify_ssl"),
                tcp_keepalive=not self._switch("disable_tcp_keepalive"),
                max_log_streams=streams,
                usage_interval=interval,
            )
        except InvalidSpec as error:
            raise InvalidSpec(f"connection {self.conn_id}, with the task's arguments over it: {error}") from None

    def default_namespace(self) -> str | None:
        """Return the default namespace of jobs: the connection's, else that of this process's pod, else None."""
        named = self._text("namespace", None)
        if named is None and self.cluster_config().in_cluster:
            return _POD_NAMESPACE.read_text().strip()
        return named

    def local_path(self, uri: str, namespace: str = "default") -> Path:
        """Return the path of `pvc://claim/path` on this machine, for tasks that can access the claims' directories.

        Raises:
            UnsupportedByBackend: the claim is not a directory on this machine.
            InvalidSpec: the address is not of this form.
        """
        local = local_config()
        if local is None:
            why = "the claims of a cluster are no directories of this machine; read the file in a pod that mounts it"
            raise UnsupportedByBackend.of(f"[{SECTION}] backend = kubernetes", why)
        return local_path(uri, claims=local.claims_of(namespace))

    def _text(self, extra: str, argument: str | None) -> str | None:
        value = self._get_field(extra) if is_unset(argument) else argument  # type: ignore[no-untyped-call]
        return None if is_unset(value) else str(value)

    def _switch(self, name: str) -> bool:
        argument = getattr(self, name)
        value = self._get_field(name) if argument is None else argument  # type: ignore[no-untyped-call]
        return False if is_unset(value) else boolean(name, value)


def _kubeconfig(extras: Mapping[str, Any]) -> str | None:
    """Return the kubeconfig in a connection as text; older connections use another name for it."""
    config = extras.get("kube_config") or extras.get("extra__kubernetes__kube_config")
    return json.dumps(config) if isinstance(config, dict) else config or None
