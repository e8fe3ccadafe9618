"""Build images with buildah in a separate store, and base images from Debian's packages.

The tools run in their own mount namespace, so that nothing stays mounted when they are interrupted.
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
# Files that a build needs to reach the package registries from this machine; those that exist are mounted.
SHARED_FILES = ("/etc/ssl/certs", "/etc/hosts", "/etc/pip.conf")


class Buildah:
    """buildah with its own store; a context manager that locks the store.

    The images stay in the store; buildah's run-time state is deleted on exit.
    """

    def __init__(self, store: Path) -> None:
        self.store = store
        self._resources = ExitStack()
        self._state = Path()

    @classmethod
    def of(cls, layout: Layout, tell: Callable[[str], None]) -> Self:
        """Return the buildah that builds the tests' images; install it if it is missing."""
        debian.install(debian.IMAGE_PACKAGES, tell)
        return cls(layout.cache / "buildah")

    def __enter__(self) -> Self:
        self._resources.enter_context(locked(self.store.with_suffix(".lock")))
        self._state = Path(self._resources.enter_context(tempfile.TemporaryDirectory(prefix="buildah-")))
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def __call__(self, *words: str, timeout: float = 900) -> str:
        """Run a buildah command and return its output."""
        folders = ["--root", str(self.store), "--runroot", str(self._state), "--storage-driver", "overlay"]
        return run(["unshare", "--mount", "buildah", *folders, *words], timeout=timeout)

    def has(self, name: str, label: str = "") -> bool:
        """Return True if the store has an image of this name, and with this label unless it is empty."""
        return name in self.names(label)

    def names(self, label: str = "") -> set[str]:
        """Return the names of all images, or of those with the label."""
        filters = [f"--filter=label={label}"] if label else []
        found = json.loads(self("images", *filters, "--json") or "[]")
        return {name for image in found for name in image.get("names") or ()}

    def forget(self) -> None:
        """Delete all images."""
        shutil.rmtree(self.store, ignore_errors=True)

    def build(
        self, context: Path, name: str, *, base: str, file: Path | None = None, label: str = "", **arguments: str
    ) -> None:
        """Build a Dockerfile, by default the context's own, on a base image; reuse cached steps.

        The image that had the name before is deleted, unless a named image is based on it.
        """
        shared = [f"--volume={path}:{path}:ro" for path in SHARED_FILES if Path(path).exists()]
        given = [f"--build-arg={key}={value}" for key, value in {"BASE_IMAGE": base, **arguments}.items()]
        options = ["--isolation=chroot", "--layers", "--pull-never", f"--file={file or context / 'Dockerfile'}"]
        labels = [f"--label={label}"] if label else []
        self("build", "--quiet", *options, *labels, *given, *shared, "--tag", name, str(context))
        self("rmi", "--prune", "--force")


@dataclass(frozen=True, kw_only=True)
class Base:
    """Image of Debian packages, the base of a Dockerfile of this repository.

    Attributes:
        repository: name without the tag.
        estimate: duration of the build, as a text for people.
        suite: Debian suite.
        packages: packages in addition to the minimal system.
        environment: environment variables as NAME=VALUE.
        repairs: shell commands that change the finished file system at "$1".
    """

    repository: str
    estimate: str
    suite: str
    packages: Sequence[str]
    environment: Sequence[str] = ()
    repairs: Sequence[str] = ()

    @property
    def tag(self) -> str:
        """Return a hash of everything that determines the content."""
        return key_of(self.suite, *self.packages, *UNUSED, *self.environment, *self.repairs)

    @property
    def name(self) -> str:
        """Return the image's name in buildah's store."""
        return f"{self.repository}:{self.tag}"

    def ensure(self, buildah: Buildah, folder: Path, tell: Callable[[str], None]) -> None:
        """Build the image if buildah does not have it; first delete all images if there is an older version."""
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
        """Write the file system as an archive."""
        excluded = [f"--dpkgopt=path-exclude={pattern}" for pattern in UNUSED]
        repairs = [f"--customize-hook={repair}" for repair in self.repairs]
        include = f"--include={','.join(self.packages)}"
        mirror = [address] if (address := debian.archive()) else []
        command = ["mmdebstrap", "--quiet", "--variant=minbase", *excluded, *repairs, include, self.suite, str(root)]
        run(["unshare", "--mount", *command, *mirror], timeout=1800)


def key_of(*parts: str) -> str:
    """Return a short hash of the texts."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
