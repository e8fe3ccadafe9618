"""Load the credentials for the API server from a kubeconfig or a pod's service account, and renew them on expiry.

`kubernetes_asyncio` is imported only to read a kubeconfig: the import takes over a second and 75 MB, which a process
with a service account saves.
"""

from __future__ import annotations

import asyncio
import asyncio.subprocess
import base64
import binascii
import json
import os
import re
import subprocess
import time
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from ptjob_provider.core.errors import ClusterError, ClusterUnavailable, InvalidSpec
from ptjob_provider.core.kubernetes.config import SERVICE_ACCOUNT

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from kubernetes_asyncio.client import Configuration

    from ptjob_provider.core.kubernetes.config import ClusterConfig

_SERVICE = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")

_SKEW = 60.0
"""A credential is renewed this many seconds before it expires; the kubelet renews a pod's token long before."""

_PAUSE = 10.0
"""Minimum seconds between two renewals: an exec plugin that returns expired tokens must not run for every request."""

_PLUGIN_TIMEOUT = 50.0
"""Seconds after which a kubeconfig's exec plugin is ended; shorter than requests wait for it."""

_PLUGIN_OUTPUT = 1 << 24
"""Bytes that an exec plugin may write to stderr; the library reads it only after the end of stdout."""

_NO_CONFIGURATION = "(no usable configuration of a cluster)"

_MALFORMED = (ValueError, TypeError, AttributeError, KeyError, AssertionError)
"""The library's exceptions for a malformed kubeconfig; most of their messages contain values from the file."""

_NO_KUBECONFIG = "it is no kubeconfig: a YAML map of `clusters`, `contexts`, `users` and `current-context`"
_HOST = re.compile(r"https?://[^/\s]+(/\S*)?")


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Address, trust and credential of an API server.

    Attributes:
        host: scheme, name and port.
        authorization: value of the Authorization header; "" with a client certificate, or without authentication.
        ca_file: file of trusted certificates. None: the system's authorities.
        cert_file: file of the client certificate.
        key_file: file of its key; None if `cert_file` has the key.
        renewed_at: when these two files were written last.
        verify_ssl: whether the server's certificate is verified.
        tls_server_name: the name in the server's certificate, if it differs from the host's.
        proxy: address of a proxy.
    """

    host: str = ""
    authorization: str = field(default="", repr=False)
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    renewed_at: tuple[int, ...] = ()
    verify_ssl: bool = True
    tls_server_name: str | None = None
    proxy: str | None = None

    @property
    def without_credential(self) -> Endpoint:
        """Return the connection's settings; new ones need a new connection, a new credential does not."""
        return replace(self, authorization="")


class Credentials:
    """Endpoint of the API server, whose credential is renewed shortly before it expires.

    Runs the exec plugin, or reads the token file, only when the credential expires or was refused, not for each
    request. The context and the server of the first load stay: on another server, each followed job would be missing.
    """

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self._expires_at: float | None = None
        self._loaded_at = 0.0
        self._context = config.context
        self.endpoint = Endpoint()

    async def load(self) -> None:
        """Load, or reload, the address and the credential.

        Raises:
            InvalidSpec: there is no usable kubeconfig or service account.
            ClusterUnavailable: the kubeconfig's exec plugin failed, or its context is gone or has another server now.
            ClusterError: the kubeconfig or service account could be used before, and cannot be used now.
        """
        try:
            endpoint, expires_at = (of_pod(), None) if self._config.in_cluster else await self._of_kubeconfig()
        except InvalidSpec as error:
            if not self.endpoint.host:
                raise
            raise ClusterError(str(error)) from error  # somebody writes the file just now, or the plugin is missing
        if self.endpoint.host not in {"", endpoint.host}:
            raise self._moved(f"is now of {endpoint.host}")
        self.endpoint = endpoint if self._config.verify_ssl else replace(endpoint, verify_ssl=False)
        self._loaded_at = time.time()
        self._expires_at = expires_at or _expiry(endpoint.authorization)

    @property
    def is_due(self) -> bool:
        """Return whether the credential is about to expire and has to be loaded anew."""
        now = time.time()
        return self._expires_at is not None and now > self._expires_at - _SKEW and now > self._loaded_at + _PAUSE

    @property
    def headers(self) -> dict[str, str]:
        """Return the authentication headers."""
        authorization = self.endpoint.authorization
        return {"Authorization": authorization} if authorization else {}

    async def _of_kubeconfig(self) -> tuple[Endpoint, float | None]:
        """Return the endpoint, and the credential's expiry if known."""
        try:
            await asyncio.to_thread(import_module, "kubernetes_asyncio.config")  # keeps the event loop free
            from kubernetes_asyncio import config as kubeconfig  # noqa: PLC0415 - see above
            from kubernetes_asyncio.client import Configuration  # noqa: PLC0415 - as above
        except ImportError as error:  # not installed in images for pods only
            raise InvalidSpec(f"{self._source}: kubernetes_asyncio reads it: {error} {_NO_CONFIGURATION}") from error

        configuration = Configuration()
        try:
            loader = await _Load().result(self._fill(configuration))
        except TimeoutError:
            raise ClusterUnavailable(
                f"{self._source}: its credential plugin did not answer within {_PLUGIN_TIMEOUT:g} s and was ended; run "
                "it by hand, it may wait for something"
            ) from None
        except (kubeconfig.ConfigException, OSError, yaml.YAMLError, *_MALFORMED) as error:
            if str(error).startswith("exec:"):  # the library has one class for invalid files and for failed plugins
                raise ClusterUnavailable(f"{self._source}: {error} (the credential plugin)") from error
            if self.endpoint.host and "contexts list" in str(error):
                raise self._moved("is gone") from error
            raise InvalidSpec(f"{_described(error, self._source, self._config.context)} {_NO_CONFIGURATION}") from error
        expiry = getattr(loader, "exec_plugin_expiry", None)
        endpoint = _endpoint(configuration)
        if not _HOST.fullmatch(endpoint.host):
            allowed = f"allowed: https://HOST:PORT {_NO_CONFIGURATION}"
            raise InvalidSpec(f"{self._source}: server: {endpoint.host!r} is not allowed; {allowed}")
        self._context = loader.current_context["name"]
        return endpoint, expiry.timestamp() if expiry else None

    def _moved(self, what: str) -> ClusterUnavailable:
        context = f"the context {self._context!r} of {self.endpoint.host}"
        return ClusterUnavailable(f"{self._source}: {context} {what}; restore it, or start this process again")

    async def _fill(self, configuration: Configuration) -> Any:
        from kubernetes_asyncio import config as kubeconfig  # noqa: PLC0415 - as above

        _forget_removed_certificates(kubeconfig.kube_config._temp_files)  # noqa: SLF001 - nothing public does it
        context = self._context
        if self._config.kube_config is not None:
            content = yaml.safe_load(self._config.kube_config)
            if not isinstance(content, dict):
                raise kubeconfig.ConfigException("a map is needed")
            return await kubeconfig.load_kube_config_from_dict(
                content, context=context, client_configuration=configuration
            )
        paths = self._paths
        if not paths:
            raise kubeconfig.ConfigException("it is not there; name one, or run jobs on this machine (backend: local)")
        if len(paths) > 1:  # the library has neither kubectl's rule for files that say nothing nor for the context
            contents = {path: _content(path) for path in paths}
            paths = [path for path in paths if contents[path]] or paths
            current = (each.get("current-context") for each in contents.values() if isinstance(each, dict))
            context = context or next(filter(None, current), None)
        files = os.pathsep.join(str(path) for path in paths)
        return await kubeconfig.load_kube_config(
            config_file=files, context=context, client_configuration=configuration, persist_config=False
        )

    @property
    def _paths(self) -> list[Path]:
        """The files that exist; an empty member of the list names none."""
        from kubernetes_asyncio import config as kubeconfig  # noqa: PLC0415 - as above

        named = self._config.kube_config_path or kubeconfig.kube_config.KUBE_CONFIG_DEFAULT_LOCATION
        paths = [Path(each).expanduser() for each in named.split(os.pathsep) if each]
        return [path for path in paths if path.exists()]

    @property
    def _source(self) -> str:
        if self._config.kube_config is not None:
            return "the connection's kubeconfig"
        return self._config.kube_config_path or "the default kubeconfig"


class _Load(asyncio.SelectorEventLoop):
    """Event loop, in a thread of its own, of one load of a kubeconfig.

    The library gives a credential plugin our stdin, which in a triggerer is the socket to Airflow, and no time limit.
    """

    def __init__(self) -> None:
        super().__init__()
        self._task: asyncio.Task[Any] | None = None
        self._starting: asyncio.Future[Any] | None = None

    async def subprocess_exec(self, _: Any, *args: Any, **options: Any) -> Any:  # type: ignore[override]
        """Start the plugin, without our stdin; see `asyncio.create_subprocess_exec`."""
        protocol = partial(asyncio.subprocess.SubprocessStreamProtocol, _PLUGIN_OUTPUT, self)
        start = super().subprocess_exec(protocol, *args, **{**options, "stdin": subprocess.DEVNULL})
        self._starting = asyncio.ensure_future(start)
        return await asyncio.shield(self._starting)  # a start that is cancelled may leave the process

    async def result(self, loading: Coroutine[Any, Any, Any]) -> Any:
        """Return the result of the load; its plugin ends with it, also at the limit or when this is cancelled."""
        try:
            return await asyncio.to_thread(self._finish, self._limited(loading))
        except asyncio.CancelledError:
            if self._task is not None:
                self.call_soon_threadsafe(self._task.cancel)
            raise

    def _finish(self, loading: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=lambda: self) as runner:
            return runner.run(loading)

    async def _limited(self, loading: Coroutine[Any, Any, Any]) -> Any:
        self._task = asyncio.current_task()
        try:
            async with asyncio.timeout(_PLUGIN_TIMEOUT):
                return await loading
        finally:
            if self._starting is not None:
                plugin, _ = await self._starting
                plugin.close()
                while plugin.get_returncode() is None:  # noqa: ASYNC110 - no event tells
                    await asyncio.sleep(0.01)


def _forget_removed_certificates(files: dict[str, str]) -> None:
    """Forget the library's files of embedded certificates that a clean-up of /tmp has removed: it never looks again."""
    for certificate in [each for each, path in list(files.items()) if not Path(path).exists()]:
        files.pop(certificate, None)


def _content(path: Path) -> Any:
    """Return a file's content; nothing but its kind for a pipe of a shell, which can be read only once."""
    return yaml.safe_load(path.read_text()) if path.is_file() else {"kind": "Config"}


def of_pod(environ: Mapping[str, str] = os.environ, folder: Path | None = None) -> Endpoint:
    """Return the endpoint according to the pod's environment and service account.

    Args:
        environ: environment variables of this process.
        folder: directory of the service account's files. None: Kubernetes' default.

    Raises:
        InvalidSpec: this process is not in a pod, or the pod has no service account.
    """
    folder = folder or SERVICE_ACCOUNT
    try:
        host, port = (_nonempty(environ.get(name), name) for name in _SERVICE)
        token = _nonempty((folder / "token").read_text().strip(), "the token")
        ca_file = folder / "ca.crt"
        _nonempty(ca_file.read_text(), str(ca_file))
    except (OSError, ValueError) as error:
        raise InvalidSpec(f"the pod's service account: {error} {_NO_CONFIGURATION}") from error
    name = f"[{host}]" if ":" in host else host
    return Endpoint(host=f"https://{name}:{port}", authorization=f"Bearer {token}", ca_file=str(ca_file))


def _described(error: Exception, source: str, context: str | None) -> str:
    """Return a description of an invalid kubeconfig, without its values, which may be secrets."""
    text = str(error).partition("{")[0].rstrip("/ ").replace("does not exists", "is not there")
    if context is not None and text.endswith("contexts list") and f"object with name {context} " in text:
        return f"context: {context!r} is not allowed; allowed: a context of {source}: kubectl config get-contexts"
    if isinstance(error, FileNotFoundError):
        return f"{source}: {error.filename} is not here; if it is the credential plugin, put its folder on the PATH"
    if isinstance(error, OSError):
        return f"{source}: {error.strerror or text}"
    if isinstance(error, yaml.YAMLError):
        return f"{source}: it is not YAML"
    return f"{source}: {_NO_KUBECONFIG if isinstance(error, _MALFORMED) else text}"


def _nonempty(text: str | None, what: str) -> str:
    if not text:
        raise ValueError(f"{what} is empty")
    return text


def _endpoint(configuration: Configuration) -> Endpoint:
    """Return the endpoint that the library has read from the kubeconfig."""
    key: Any = configuration.api_key.get("BearerToken", "")
    return Endpoint(
        host=configuration.host or "",
        authorization=str(key).strip(),
        ca_file=configuration.ssl_ca_cert,
        cert_file=configuration.cert_file,
        key_file=configuration.key_file,
        renewed_at=_written_at(configuration.cert_file, configuration.key_file),
        verify_ssl=configuration.verify_ssl,
        tls_server_name=configuration.tls_server_name,
        proxy=configuration.proxy,
    )


def _written_at(*files: str | None) -> tuple[int, ...]:
    try:
        return tuple(Path(file).stat().st_mtime_ns for file in files if file)
    except OSError:  # the connection names the file
        return ()


def _expiry(token: str) -> float | None:
    """Return the expiry of a JSON web token (its claim `exp`, seconds since 1970); None for any other token."""
    parts = token.removeprefix("Bearer ").split(".")
    if len(parts) != 3:  # noqa: PLR2004 - header, claims, signature
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, binascii.Error):
        return None
    expires_at = claims.get("exp") if isinstance(claims, dict) else None
    return float(expires_at) if isinstance(expires_at, int | float) else None
