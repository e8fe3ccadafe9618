"""How a task reaches its jobs: the arguments that operator, sensor and trigger share, and what they lead to.

Importing it loads no Kubernetes client, and where jobs run on this machine none is loaded later either.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, fields, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self

from airflow.sdk.log import mask_secret

from ptjob_provider.airflow.config import Settings
from ptjob_provider.core.api_errors import TIMEOUT
from ptjob_provider.core.errors import PTJobError
from ptjob_provider.core.loops import OnePerLoop

if TYPE_CHECKING:
    from ptjob_provider.airflow.hooks import PyTorchJobHook
    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.local import LocalConfig

DEFAULT_CONN_ID = "kubernetes_default"

FRESH = 30.0
"""Seconds for which the triggers of a process take a connection and the settings as one of them has read them: a
triggerer may start ten thousand at once, and each reading is a question to the process that also keeps its rows."""


class ConnectionMissing(PTJobError):
    """A process does not know the connection that the task names; another try may find it."""

    retryable = True

    @classmethod
    def in_triggerer(cls, conn_id: str) -> Self:
        """Build the error of a connection that only workers know."""
        return cls(
            f"The connection {conn_id!r} is not known to the triggerer, which waits for deferred tasks: the job goes "
            "on and nobody watches it. Define the connection where workers and triggerers both see it - in Airflow's "
            f"database, in a secrets backend, or as AIRFLOW_CONN_{conn_id.upper()} in the environment of both - or set "
            "deferrable=False"
        )


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where jobs run.

    Attributes:
        backend: runs them.
        namespace: of jobs that name none. None: `default`.
        access: what leads here from another process of this installation.
        api_error_timeout: seconds for which requests about a job may be refused.
    """

    backend: Backend
    namespace: str | None
    access: Access
    api_error_timeout: float = TIMEOUT


@dataclass(frozen=True, kw_only=True)
class Access:
    """Which connection leads to the cluster, and what of it the task overrides. It holds no secret and may travel.

    Attributes:
        kubernetes_conn_id: the connection. None: none, but what a pod or this machine's user has.
        in_cluster: whether to use the service account of the pod that this runs in. None: the connection's word.
        config_file: path of a kubeconfig. None: the connection's word.
        cluster_context: of the kubeconfig. None: the connection's word, else the kubeconfig's current one.
    """

    kubernetes_conn_id: str | None = DEFAULT_CONN_ID
    in_cluster: bool | None = None
    config_file: str | None = None
    cluster_context: str | None = None

    @classmethod
    def of(cls, task: object) -> Self:
        """Read the arguments from an operator, a sensor or a trigger that keeps them under these names."""
        return cls(**{each.name: getattr(task, each.name) for each in fields(cls)})

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-safe fields."""
        return asdict(self)

    def place(self) -> Place:
        """Return where jobs run.

        Raises:
            InvalidSpec: an option of `[ptjob]` or the connection is wrong.
            AirflowNotFoundException: there is no such connection.
        """
        settings = Settings.load()
        if settings.local is not None:
            return self._on_this_machine(settings.local, settings)
        return self._on_cluster(self._hook(), settings)

    async def async_place(self) -> Place:
        """Return the same in a triggerer, without holding up its event loop; as it was at most FRESH seconds ago.

        Raises:
            InvalidSpec: as in `place`.
            ConnectionMissing: the triggerer does not know the connection, although its task did.
        """
        return await _known_places.get().get(self)

    async def look_up(self) -> Place:
        """Return the same as it is now; raises as `async_place`."""
        settings = Settings.load()
        if settings.local is not None:
            return self._on_this_machine(settings.local, settings)
        hook = await asyncio.to_thread(self._hook)  # its import takes a second
        await hook.read_connection(is_required=True)
        return self._on_cluster(hook, settings)

    def _hook(self) -> PyTorchJobHook:
        hook: PyTorchJobHook = import_module("ptjob_provider.airflow.hooks").PyTorchJobHook(**self.to_dict())
        return hook

    def _on_this_machine(self, config: LocalConfig, settings: Settings) -> Place:
        return Place(
            backend=local_backend(config),
            namespace=None,
            api_error_timeout=settings.api_error_timeout,
            access=self,
        )

    def _on_cluster(self, hook: PyTorchJobHook, settings: Settings) -> Place:
        """Tell the next process what this one knows: a default connection that is not there must not be there then."""
        return Place(
            backend=hook.cluster_backend(),
            namespace=hook.default_namespace(),
            api_error_timeout=settings.api_error_timeout,
            access=self if hook.connection else replace(self, kubernetes_conn_id=None),
        )


class _KnownPlaces:
    """Where the triggers of one event loop find their jobs; those that come together ask once."""

    def __init__(self) -> None:
        self._asking: defaultdict[Access, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._found: dict[Access, tuple[Place, float]] = {}

    async def get(self, access: Access) -> Place:
        """Return the place, read anew if what is known is not fresh."""
        async with self._asking[access]:
            place, read_at = self._found.get(access, (None, 0.0))
            if place is None or time.monotonic() - read_at > FRESH:
                place = await access.look_up()
                self._found[access] = (place, time.monotonic())
            return place


_known_places = OnePerLoop(_KnownPlaces)


def local_backend(config: LocalConfig) -> Backend:
    """Return this machine; the secrets that it may hand to jobs are masked in Airflow's logs from now on."""
    from ptjob_provider.core.local import LocalBackend  # noqa: PLC0415 - only where jobs run locally

    for table in config.secrets.values():
        for value in table.values():
            mask_secret(value)
    return LocalBackend(config)
