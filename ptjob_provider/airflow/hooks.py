"""`PyTorchJobHook`: an Airflow connection and the section `[ptjob]` → a back-end. Nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import BaseHook
from airflow.sdk.log import mask_secret

from ptjob_provider.airflow.config import SECTION, Settings
from ptjob_provider.core.errors import UnsupportedByBackend
from ptjob_provider.core.handover import local_path

if TYPE_CHECKING:
    from pathlib import Path

    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.local import LocalConfig


class PyTorchJobHook(BaseHook):
    """Reaches training jobs where `[ptjob] backend` says that they run.

    Args:
        kubernetes_conn_id: the connection to the cluster; the local back-end needs none and never looks at it.
    """

    conn_name_attr = "kubernetes_conn_id"
    default_conn_name = "kubernetes_default"
    conn_type = "kubernetes"
    hook_name = "PyTorch training jobs"

    def __init__(self, kubernetes_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.kubernetes_conn_id = kubernetes_conn_id

    @property
    def instance(self) -> str:
        """This installation's name, part of the name of every job."""
        return Settings.load().instance

    def backend(self) -> Backend:
        """Return the back-end; the secrets that it may hand to jobs are masked in Airflow's logs from now on.

        Raises:
            InvalidSpec: an option of `[ptjob]` is wrong.
            UnsupportedByBackend: jobs are to run on a cluster.
        """
        from ptjob_provider.core.local import LocalBackend  # noqa: PLC0415 - DAG files import hooks, too

        config = self._local()
        for table in config.secrets.values():
            for value in table.values():
                mask_secret(value)
        return LocalBackend(config)

    def local_path(self, uri: str, namespace: str = "default") -> Path:
        """Return where `pvc://claim/path` lies on this machine; for tasks that run beside the claims.

        Raises:
            UnsupportedByBackend: the claim is no directory here.
            InvalidSpec: it is no such address.
        """
        return local_path(uri, claims=self._local().claims_of(namespace))

    def _local(self) -> LocalConfig:
        settings = Settings.load()
        if settings.local is None:
            why = "jobs on a cluster come with the next release"
            raise UnsupportedByBackend.of(
                f"[{SECTION}] backend = kubernetes", f"{why}; set it to `local` to run them here"
            )
        return settings.local
