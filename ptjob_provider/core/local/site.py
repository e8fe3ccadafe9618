"""This machine, as somebody sees it who looks around; see `core.site`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ptjob_provider.core.errors import UnsupportedByBackend
from ptjob_provider.core.local.files import read_json
from ptjob_provider.core.local.objects import JobStore

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from ptjob_provider.core.identity import JobRef, Manifest
    from ptjob_provider.core.local.config import LocalConfig
    from ptjob_provider.core.logs import LogLine


class LocalSite:
    """Looks around on this machine; implements `site.Site`."""

    def __init__(self, config: LocalConfig) -> None:
        self._config = config
        self._store = JobStore(config.root)

    async def events(self, ref: JobRef, pods: Sequence[str]) -> Sequence[Manifest]:  # noqa: ARG002 - the port's
        """Return what of the job does not apply here; see `Site.events`."""
        files = self._store.files(ref.namespace, ref.name)
        return await asyncio.to_thread(lambda: read_json(files.notices) or [])

    def container_log(self, ref: JobRef, pod: str, container: str, *, follow: bool) -> AsyncGenerator[LogLine, None]:  # noqa: ARG002 - the port's
        """Refuse: a replica is one process here; see `Site.container_log`."""
        raise UnsupportedByBackend.of("--container", f"{ref.namespace}/{pod} is one process here, without {container}")
