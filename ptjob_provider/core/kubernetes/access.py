"""Who we are to the API server: loaded from a kubeconfig or a pod's service account, renewed when it expires."""

from __future__ import annotations

import base64
import binascii
import json
import time
from typing import TYPE_CHECKING, Any

import yaml
from kubernetes_asyncio import config as kubeconfig
from kubernetes_asyncio.client import Configuration

from ptjob_provider.core.errors import ClusterUnavailable, InvalidSpec

if TYPE_CHECKING:
    from ptjob_provider.core.kubernetes.config import ClusterConfig

_SKEW = 60.0
"""Seconds before its expiry at which a credential is renewed; a kubelet has renewed a pod's token long before."""

_PAUSE = 10.0
"""Seconds between two renewals, so that a plugin which hands out expired tokens is not run for every request."""


class Access:
    """An address, the trust in it, and a credential that is renewed shortly before it expires.

    An exec plugin runs and a token file is read when the credential at hand has expired, or was refused; never for each
    request.
    """

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self._expires_at: float | None = None
        self._loaded_at = 0.0
        self.settings = Configuration()

    async def load(self) -> None:
        """Read address and credential anew.

        Raises:
            InvalidSpec: there is no usable kubeconfig.
            ClusterUnavailable: its exec plugin failed.
        """
        settings = Configuration()
        expires_at = await self._fill(settings)
        settings.connection_pool_maxsize = 0  # a log stream for each job: the pool must not be what bounds them
        if not self._config.verify_ssl:
            settings.verify_ssl = False
        token = str(settings.api_key.get("BearerToken", "")).strip()
        if token:
            settings.api_key["BearerToken"] = token
        self.settings, self._loaded_at = settings, time.time()
        self._expires_at = expires_at or _expiry(token)

    async def headers(self) -> dict[str, str]:
        """Return what proves who asks, renewed if it is about to expire."""
        now = time.time()
        if self._expires_at is not None and now > self._expires_at - _SKEW and now > self._loaded_at + _PAUSE:
            await self.load()
        token = self.settings.api_key.get("BearerToken")
        return {"Authorization": token} if token else {}

    @property
    def identity(self) -> tuple[Any, ...]:
        """What a connection depends on: when it changes, a new one is needed."""
        names = ("host", "ssl_ca_cert", "cert_file", "key_file", "verify_ssl", "tls_server_name", "proxy")
        return tuple(getattr(self.settings, name) for name in names)

    async def _fill(self, settings: Configuration) -> float | None:
        """Fill in the settings; return when the credential expires, if its source says so."""
        try:
            if self._config.in_cluster:
                kubeconfig.load_incluster_config(settings, try_refresh_token=False)  # type: ignore[no-untyped-call]
                return None
            loader = await self._from_kubeconfig(settings)
        except (kubeconfig.ConfigException, OSError, ValueError, TypeError, AssertionError, yaml.YAMLError) as error:
            text = f"{self._source}: {error}"
            if str(error).startswith("exec:"):  # the library has one class for a wrong file and for a plugin's failure
                raise ClusterUnavailable(f"{text} (the credential plugin)") from error
            raise InvalidSpec(f"{text} (no usable configuration of a cluster)") from error
        expiry = getattr(loader, "exec_plugin_expiry", None)
        return expiry.timestamp() if expiry else None

    async def _from_kubeconfig(self, settings: Configuration) -> object:
        context = self._config.context
        if self._config.kube_config is not None:
            found = yaml.safe_load(self._config.kube_config)
            if not isinstance(found, dict):
                raise kubeconfig.ConfigException("a map is needed")
            return await kubeconfig.load_kube_config_from_dict(found, context=context, client_configuration=settings)
        path = self._config.kube_config_path
        return await kubeconfig.load_kube_config(
            config_file=path, context=context, client_configuration=settings, persist_config=False
        )

    @property
    def _source(self) -> str:
        if self._config.in_cluster:
            return "the pod's service account"
        if self._config.kube_config is not None:
            return "the connection's kubeconfig"
        return self._config.kube_config_path or "the default kubeconfig"


def _expiry(token: str) -> float | None:
    """Return when a JSON web token expires (its claim `exp`, seconds since 1970); None for any other token."""
    parts = token.removeprefix("Bearer ").split(".")
    if len(parts) != 3:  # noqa: PLR2004 - header, claims, signature
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, binascii.Error):
        return None
    expires_at = claims.get("exp") if isinstance(claims, dict) else None
    return float(expires_at) if isinstance(expires_at, int | float) else None
