"""Build images from this repository's Dockerfiles when their content has changed, and put them into a cluster."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cluster.buildah import Base, Buildah, key_of
from cluster.images import KEY_LABEL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from cluster.boot import Cluster
    from cluster.layout import Layout


@dataclass(frozen=True, kw_only=True)
class BuiltImage:
    """Image that a Dockerfile builds.

    Attributes:
        name: image name with registry and tag, as in a pod.
        context: build context.
        base: base image.
        file: Dockerfile. None: the context's own.
        content: files and folders of the context that determine the image. Empty: all of them.
        estimate: duration of the build, as a text for people.
        import_estimate: duration of the import into a cluster.
    """

    name: str
    context: Path
    base: Base
    file: Path | None = None
    content: Sequence[str] = ()
    estimate: str = "1 min"
    import_estimate: str = "1 min 30 s"

    @property
    def key(self) -> str:
        """Return a hash of everything that determines the content."""
        return key_of(self.base.tag, self.name, *map(self._line, sorted(set(self._files()))))

    def ensure(self, cluster: Cluster, tell: Callable[[str], None]) -> str:
        """Build the image if necessary, import it into a running cluster, and return its name.

        Raises:
            ClusterFailed: the build failed; the message has the end of the tool's output.
        """
        key = self.key
        if cluster.images.has(self.name, key):
            return self.name
        with Buildah.of(cluster.layout, tell) as buildah:
            if cluster.images.has(self.name, key):  # another process imported it meanwhile
                return self.name
            self._build(buildah, cluster.layout, key, tell)
            tell(f"importing the image {self.name} (about {self.import_estimate})")
            archive = cluster.layout.home / f"{key}.tar"
            archive.unlink(missing_ok=True)
            buildah("push", "--quiet", self.name, f"docker-archive:{archive}:{self.name}")
            cluster.images.take(archive, self.name, key)
        return self.name

    def build(self, layout: Layout, tell: Callable[[str], None]) -> None:
        """Build the image if necessary; needs no cluster."""
        with Buildah.of(layout, tell) as buildah:
            self._build(buildah, layout, self.key, tell)

    def _build(self, buildah: Buildah, layout: Layout, key: str, tell: Callable[[str], None]) -> None:
        label = f"{KEY_LABEL}={key}"
        if buildah.has(self.name, label):
            return
        self.base.ensure(buildah, layout.images, tell)
        tell(f"building the image {self.name} (about {self.estimate})")
        buildah.build(self.context, self.name, base=self.base.name, file=self._dockerfile, label=label)

    @property
    def _dockerfile(self) -> Path:
        return self.file or self.context / "Dockerfile"

    def _files(self) -> Iterator[Path]:
        yield self._dockerfile
        for place in [self.context / name for name in self.content] or [self.context]:
            found = [place] if place.is_file() else place.rglob("*")
            yield from (file for file in found if file.is_file() and "__pycache__" not in file.parts)

    def _line(self, file: Path) -> str:
        return f"{file.relative_to(self.context)} {hashlib.sha256(file.read_bytes()).hexdigest()}"
