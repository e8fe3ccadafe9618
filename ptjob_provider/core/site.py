"""What is around jobs where they run: events, nodes, claims, what one may do. For whoever looks; no job needs it.

Two implement it, a cluster and this machine. It is apart from the port of `backend`, which is all that submitting and
following a job takes: a Role that is enough for that need not be enough for this, and each answer says which verb is
missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from ptjob_provider.core.identity import JobRef, Manifest
    from ptjob_provider.core.logs import LogLine


class Site(Protocol):
    """Where jobs run, as somebody sees it who looks around."""

    async def events(self, ref: JobRef, pods: Sequence[str]) -> Sequence[Manifest]:
        """Return core/v1 Events about the job and its pods, in no order; as far as they are kept."""

    def container_log(self, ref: JobRef, pod: str, container: str, *, follow: bool) -> AsyncGenerator[LogLine, None]:
        """Yield the lines of any container of a job's pod, from its beginning; with `follow` until it ends.

        Raises:
            JobNotFound: there is no such pod.
            InvalidSpec: the pod has no such container, or it has not begun.
            UnsupportedByBackend: there are none but the training's here.
        """
