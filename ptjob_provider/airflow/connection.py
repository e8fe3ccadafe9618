"""Connect to the back-end, from the connection arguments that operator, sensor and trigger share.

Importing this module loads no Kubernetes client; if jobs run on this machine, none is loaded later either.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, fields, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self

from airflow.sdk.log import mask_secret

from ptjob_provider.airflow.config import SECTION_OPTIONS, local_config
from ptjob_provider.core.errors import PTJobError
from ptjob_provider.core.run.api_errors import TIMEOUT
from ptjob_provider.core.shared import OnePerLoop

if TYPE_CHECKING:
    from ptjob_provider.airflow.hooks import PyTorchJobHook
    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.local.config import LocalConfig

DEFAULT_CONN_ID = "kubernetes_default"

FRESH = 30.0
"""Seconds for which the triggers of a process share a connection and the settings after they were read.

A triggerer may start ten thousand triggers at once, and reading a connection is a request to the supervisor, which also
manages the triggerer's database rows.
"""

_REFUSED = 5.0
"""Seconds for which they share an error, as each of them asks again every few seconds."""


class ConnectionMissing(PTJobError):
    """The connection that the task names is unknown to this process; another try may find it."""

    retryable = True

    @classmethod
    def in_triggerer(cls, conn_id: str) -> Self:
        """Build the error for a connection that only workers know."""
        return cls(
            f"The connection {conn_id!r} is unknown to the triggerer, which waits for deferred tasks: the job "
            "continues, but nothing follows it. Define the connection where workers and triggerers can both read it "
            f"(Airflow's database, a secrets backend, or AIRFLOW_CONN_{conn_id.upper()} in both environments), or set "
            "deferrable=False"
        )


@dataclass(frozen=True, kw_only=True)
class ResolvedConnection:
    """The back-end of a connection, with its default namespace.

    Attributes:
        backend: runs the jobs.
        namespace: default namespace of jobs. None: `default`.
        args: the arguments with which another process of this installation connects.
        api_error_timeout: seconds for which requests about a job may be refused.
    """

    backend: Backend
    namespace: str | None
    args: ConnectionArgs
    api_error_timeout: float = TIMEOUT


@dataclass(frozen=True, kw_only=True)
class ConnectionArgs:
    """A connection's name and the task's overrides. It holds no secret and is serializable.

    Attributes:
        kubernetes_conn_id: the connection. None: the default of the pod or of this machine's user.
        in_cluster: whether to use the service account of the pod that this process runs in. None: the connection's
            value.
        config_file: path of a kubeconfig. None: the connection's value.
        cluster_context: the kubeconfig's context. None: the connection's value, else the kubeconfig's current one.
    """

    kubernetes_conn_id: str | None = DEFAULT_CONN_ID
    in_cluster: bool | None = None
    config_file: str | None = None
    cluster_context: str | None = None

    @classmethod
    def of(cls, task: object) -> Self:
        """Read the arguments from an operator, sensor or trigger with attributes of these names."""
        return cls(**{each.name: getattr(task, each.name) for each in fields(cls)})

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-safe fields."""
        return asdict(self)

    def resolve(self) -> ResolvedConnection:
        """Return the connection that these arguments name.

        Raises:
            InvalidSpec: an option of `[ptjob]` or the connection is wrong.
            AirflowNotFoundException: the connection does not exist.
        """
        local = local_config()
        return self._on_cluster(self._hook()) if local is None else self._on_this_machine(local)

    async def async_resolve(self) -> ResolvedConnection:
        """Return the connection from a cache that keeps it FRESH seconds, without blocking the event loop.

        Raises:
            InvalidSpec: as in `resolve`.
            ConnectionMissing: the task had the connection, but the triggerer does not know it.
        """
        return await _resolved.get().get(self)

    async def resolve_uncached(self) -> ResolvedConnection:
        """Return the connection without the cache; raises as `async_resolve`."""
        local = local_config()
        if local is not None:
            return self._on_this_machine(local)
        hook = await asyncio.to_thread(self._hook)  # importing the hook takes a second
        await hook.read_connection()
        return self._on_cluster(hook)

    def _hook(self) -> PyTorchJobHook:
        hook: PyTorchJobHook = import_module("ptjob_provider.airflow.hooks").PyTorchJobHook(**self.to_dict())
        return hook

    def _on_this_machine(self, config: LocalConfig) -> ResolvedConnection:
        return ResolvedConnection(
            backend=local_backend(config),
            namespace=None,
            api_error_timeout=SECTION_OPTIONS.api_error_timeout(),
            args=self,
        )

    def _on_cluster(self, hook: PyTorchJobHook) -> ResolvedConnection:
        """Return the connection; if the default one is not defined, `args` has None, so that triggers need none."""
        return ResolvedConnection(
            backend=hook.cluster_backend(),
            namespace=hook.default_namespace(),
            api_error_timeout=SECTION_OPTIONS.api_error_timeout(),
            args=self if hook.connection else replace(self, kubernetes_conn_id=None),
        )


class _ResolvedConnections:
    """Cache of the connections of one event loop's triggers; concurrent callers share one request."""

    def __init__(self) -> None:
        self._locks: defaultdict[ConnectionArgs, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._cached: dict[ConnectionArgs, tuple[ResolvedConnection | Exception, float]] = {}

    async def get(self, args: ConnectionArgs) -> ResolvedConnection:
        """Return the connection, read again if the cached one is not fresh; an error counts for all callers, too."""
        async with self._locks[args]:
            found, read_at = self._cached.get(args, (None, 0.0))
            if found is None or time.monotonic() - read_at > (_REFUSED if isinstance(found, Exception) else FRESH):
                try:
                    found = await args.resolve_uncached()
                except Exception as error:  # noqa: BLE001 - raised below
                    found = error
                self._cached[args] = (found, time.monotonic())
            if isinstance(found, Exception):
                raise found.with_traceback(None)
            return found


_resolved = OnePerLoop(_ResolvedConnections)


def local_backend(config: LocalConfig) -> Backend:
    """Return this machine's back-end, and make Airflow's logs mask the secrets that it may pass to jobs."""
    from ptjob_provider.core.local.backend import LocalBackend  # noqa: PLC0415 - only where jobs run locally

    for table in config.secrets.values():
        for value in table.values():
            mask_secret(value)
    return LocalBackend(config)
