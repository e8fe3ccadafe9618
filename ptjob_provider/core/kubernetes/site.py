"""A cluster, as somebody sees it who looks around; see `core.site`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptjob_provider.core.kubernetes import paths
from ptjob_provider.core.kubernetes.client import lease
from ptjob_provider.core.logs import LineSplitter, LogCursor, LogLine, Piece

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence

    from ptjob_provider.core.identity import JobRef, Manifest
    from ptjob_provider.core.kubernetes.config import ClusterConfig

_FEW = 8
"""Up to how many objects are asked about one by one; of more, all events of the namespace are read."""

_SILENCE = 3600.0


class ClusterSite:
    """Looks around on a cluster; implements `site.Site`."""

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config

    async def events(self, ref: JobRef, pods: Sequence[str]) -> Sequence[Manifest]:
        """Return the events about the job and its pods; see `Site.events`."""
        names = (ref.name, *pods)
        path = paths.events(ref.namespace)
        async with lease(self._config) as client:
            if len(names) <= _FEW:
                found = [
                    event
                    for name in names
                    for event in await client.items(path, fieldSelector=f"involvedObject.name={name}")
                ]
            else:
                found = await client.items(path)
        return [event for event in found if _is_about(event, ref, names)]

    async def container_log(
        self, ref: JobRef, pod: str, container: str, *, follow: bool
    ) -> AsyncGenerator[LogLine, None]:
        """Yield a container's lines as the kubelet has them; see `Site.container_log`."""
        query = {"container": container, "timestamps": "true", "follow": "true" if follow else "false"}
        splitter = LineSplitter()
        async with (
            lease(self._config) as client,
            client.stream(paths.pod_log(ref.namespace, pod), silence=_SILENCE, **query) as chunks,
        ):
            async for chunk in chunks:
                for line in _lines(splitter.feed(chunk), container):
                    yield line
            for line in _lines(splitter.finish(), container):
                yield line


def _is_about(event: Manifest, ref: JobRef, names: Sequence[str]) -> bool:
    """Whether it is about this job or a pod of its name; an earlier job of the same name has another uid."""
    about = event["involvedObject"]
    return about.get("uid") == ref.uid or (about.get("kind") == "Pod" and about.get("name") in names)


def _lines(pieces: Iterable[Piece], container: str) -> Iterator[LogLine]:
    for piece in pieces:
        stamp, _, text = piece.text.partition(" ")
        place = LogCursor(pod_uid="", container=container, restart_count=0, timestamp=stamp, ordinal=0)
        yield LogLine(text=text, timestamp=stamp, cursor=place, continues=piece.continues)
