"""Read Kueue's Workloads in the API version that the server has."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from ptjob_provider.core.errors import ClusterError
from ptjob_provider.core.kinds.queue import JOB_UID_LABEL
from ptjob_provider.core.kubernetes import paths

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kubernetes.client import Client


class Queues:
    """The Workloads of one namespace; the version that answered last is tried first."""

    def __init__(self, namespace: str) -> None:
        self._path, self._other_path = paths.workloads(namespace)

    async def workloads(self, client: Client, uid: str = "") -> list[Manifest]:
        """Return the Workloads of the job with this uid; of all jobs if it is "".

        Raises:
            ClusterError: they may not be read; 404: the server has no Kueue.
        """
        query = {"labelSelector": f"{JOB_UID_LABEL}={uid}"} if uid else {}
        try:
            return await client.items(self._path, **query)
        except ClusterError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise
        self._path, self._other_path = self._other_path, self._path
        return await client.items(self._path, **query)
