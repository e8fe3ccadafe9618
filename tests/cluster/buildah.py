"""buildah, with a store of its own, and the base images that are made from Debian's packages.

The tools work in a mount namespace that ends with them, so that nothing stays mounted when they are interrupted.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from cluster import debian
from cluster.shell import locked, run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cluster.layout import Layout

UNUSED = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/lib/libtorch-test/*")
# How a build reaches the package registries from here, where these exist.
SHARED_FILES = ("/etc/ssl/certs", "/etc/hosts", "/etc/pip.conf")


class Buildah:
    """buildah with a store of its own. A context manager: one at a time has the store, whose images stay.

    What buildah keeps while it runs is gone on leaving.
    """

    def __init__(self, store: Path) -> None:
        self.store = store
        self._resources = ExitStack()
        self._state = Path()

    @classmethod
    def of(cls, layout: Layout, tell: Callable[[str], None]) -> Self:
        """Return the one that the tests' images are built with; it is installed if it is missing."""
        debian.install(debian.IMAGE_PACKAGES, tell)
        return cls(layout.cache / "buildah")

    def __enter__(self) -> Self:
        self._resources.enter_context(locked(self.store.with_suffix(".lock")))
        self._state = Path(self._resources.enter_context(tempfile.TemporaryDirectory(prefix="buildah-")))
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def __call__(self, *words: str, timeout: float = 900) -> str:
        """Return what a buildah command printed."""
        folders = ["--root", str(self.store), "--runroot", str(self._state), "--storage-driver", "overlay"]
        return run(["unshare", "--mount", "buildah", *folders, *words], timeout=timeout)

    def has(self, name: str, label: str = "") -> bool:
        """Tell whether there is an image of this name, with this label if one is named."""
        return name in self.names(label)

    def names(self, label: str = "") -> set[str]:
        """Return the names of all images, or of those with this label."""
        filters = [f"--filter=label={label}"] if label else []
        found = json.loads(self("images", *filters, "--json") or "[]")
        return {name for image in found for name in image.get("names") or ()}

    def forget(self) -> None:
        """Have no image any more."""
        shutil.rmtree(self.store, ignore_errors=True)

    def build(
        self, context: Path, name: str, *, base: str, file: Path | None = None, label: str = "", **arguments: str
    ) -> None:
        """Build a Dockerfile, by default the context's own, on a base; unchanged steps are not repeated.

        What had the name before is forgotten, unless it is still a step on the way to an image with a name.
        """
        shared = [f"--volume={path}:{path}:ro" for path in SHARED_FILES if Path(path).exists()]
        given = [f"--build-arg={key}={value}" for key, value in {"BASE_IMAGE": base, **arguments}.items()]
        options = ["--isolation=chroot", "--layers", "--pull-never", f"--file={file or context / 'Dockerfile'}"]
        labels = [f"--label={label}"] if label else []
        self("build", "--quiet", *options, *labels, *given, *shared, "--tag", name, str(context))
        self("rmi", "--prune", "--force")


@dataclass(frozen=True, kw_only=True)
class Base:
    """An image of Debian packages that a Dockerfile of this repository can build on.

    Attributes:
        repository: its name without the tag.
        estimate: how long making it takes, for people.
        suite: of Debian.
        packages: what is installed beside the smallest system.
        environment: NAME=VALUE of whatever runs in it.
        repairs: shell commands that change the file system at "$1" afterwards.
    """

    repository: str
    estimate: str
    suite: str
    packages: Sequence[str]
    environment: Sequence[str] = ()
    repairs: Sequence[str] = ()

    @property
    def tag(self) -> str:
        """The hash of what decides its content."""
        return key_of(self.suite, *self.packages, *UNUSED, *self.environment, *self.repairs)

    @property
    def name(self) -> str:
        """How buildah knows it."""
        return f"{self.repository}:{self.tag}"

    def ensure(self, buildah: Buildah, folder: Path, tell: Callable[[str], None]) -> None:
        """Have it among buildah's images; an older one is forgotten with all that was built on it."""
        names = buildah.names()
        if self.name in names:
            return
        tell(f"making {self.repository} from Debian packages (about {self.estimate}, once)")
        if any(name.startswith(f"{self.repository}:") for name in names):
            buildah.forget()
        folder.mkdir(parents=True, exist_ok=True)
        root = folder / f"base-{self.tag}.tar"
        try:
            self._bootstrap(root)
            container = buildah("from", "scratch").strip()
            buildah("add", "--quiet", container, str(root), "/")
            buildah("config", "--cmd", "/bin/bash", *(f"--env={setting}" for setting in self.environment), container)
            buildah("commit", "--quiet", "--rm", container, self.name)
        finally:
            root.unlink(missing_ok=True)

    def _bootstrap(self, root: Path) -> None:
        """Write its file system as an archive."""
        excluded = [f"--dpkgopt=path-exclude={pattern}" for pattern in UNUSED]
        repairs = [f"--customize-hook={repair}" for repair in self.repairs]
        include = f"--include={','.join(self.packages)}"
        mirror = [address] if (address := debian.archive()) else []
        command = ["mmdebstrap", "--quiet", "--variant=minbase", *excluded, *repairs, include, self.suite, str(root)]
        run(["unshare", "--mount", *command, *mirror], timeout=1800)


def key_of(*parts: str) -> str:
    """Return a short hash of texts."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
