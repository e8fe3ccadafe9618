"""Images that train: a base with PyTorch from Debian's packages, and what a Dockerfile of this repository makes of it.

The tools work in a mount namespace that ends with them, so that nothing stays mounted when they are interrupted.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

from cluster import debian
from cluster.images import KEY_LABEL
from cluster.shell import ClusterFailed, locked, run

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.boot import Cluster
    from cluster.layout import Layout

DIGITS_IMAGE = "ghcr.io/ptjob-provider/digits:test"
DIGITS_CONTEXT = Path(__file__).parents[2] / "docker" / "digits"
BASE = "localhost/training-base"
# PyTorch 2.6, built for CPUs: what PyPI serves for this platform is built for CUDA and four times as large.
SUITE = "trixie"
PACKAGES = ("ca-certificates", "python-is-python3", "python3", "python3-pip", "python3-torch")
UNUSED = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/lib/libtorch-test/*")
# Debian builds PyTorch without libuv. Where TCPStore is made for a script a variable says so; torchrun does not ask it.
ENVIRONMENT = ("PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "USE_LIBUV=0")
DISTRIBUTED = "/usr/lib/python3/dist-packages/torch/distributed"
REPAIRS = (
    f'sed -i "s/multi_tenant=True,/multi_tenant=True, use_libuv=False,/" "$1{DISTRIBUTED}"/elastic/rendezvous/*.py',
    f'sed -i "s/is_master=False,/is_master=False, use_libuv=False,/" "$1{DISTRIBUTED}/rendezvous.py"',
)
# How a build reaches the package registries from here, where these exist.
SHARED_FILES = ("/etc/ssl/certs", "/etc/hosts", "/etc/pip.conf")


def ensure_digits(cluster: Cluster, tell: Callable[[str], None]) -> str:
    """Have the digits image in a cluster that is up, and return its name.

    Raises:
        ClusterFailed: it cannot be built; with the end of what the tool said.
    """
    return ensure_built(cluster, DIGITS_CONTEXT, DIGITS_IMAGE, tell)


def ensure_built(cluster: Cluster, context: Path, name: str, tell: Callable[[str], None]) -> str:
    """Have what a folder's Dockerfile makes of our base in a cluster that is up, under a name, and return the name."""
    key = content_key(context, name)
    if cluster.images.has(name, key):
        return name
    with Buildah.of(cluster.layout, tell) as buildah:
        if cluster.images.has(name, key):  # whoever had buildah before us
            return name
        _build(buildah, cluster.layout, context, name, tell)
        tell(f"importing the image {name} (about 1 min 30 s)")
        archive = cluster.layout.home / f"{key}.tar"
        archive.unlink(missing_ok=True)
        buildah("push", "--quiet", name, f"docker-archive:{archive}:{name}")
        cluster.images.take(archive, name, key)
    return name


def build(layout: Layout, context: Path, name: str, tell: Callable[[str], None]) -> None:
    """Have what a folder's Dockerfile makes of our base among the built images; no cluster is needed for that."""
    with Buildah.of(layout, tell) as buildah:
        _build(buildah, layout, context, name, tell)


def _build(buildah: Buildah, layout: Layout, context: Path, name: str, tell: Callable[[str], None]) -> None:
    key = content_key(context, name)
    if not buildah.has(name, f"{KEY_LABEL}={key}"):
        ensure_base(buildah, layout.images, tell)
        tell(f"building the image {name} (about 1 min)")
        buildah.build(context, name, base=f"{BASE}:{base_tag()}", label=f"{KEY_LABEL}={key}")


def content_key(context: Path, name: str) -> str:
    """Return the hash of what decides an image's content."""
    return _key(base_tag(), name, *_content(context))


def ensure_base(buildah: Buildah, folder: Path, tell: Callable[[str], None]) -> None:
    """Have the base among the images that a Dockerfile can build on; what was built on an older one is forgotten."""
    name = f"{BASE}:{base_tag()}"
    if buildah.has(name):
        return
    tell("making the training images' base from Debian packages (about 2 min 30 s, once)")
    buildah.forget()
    folder.mkdir(parents=True, exist_ok=True)
    root = folder / f"base-{base_tag()}.tar"
    try:
        bootstrap(root)
        container = buildah("from", "scratch").strip()
        buildah("add", "--quiet", container, str(root), "/")
        buildah("config", "--cmd", "/bin/bash", *(f"--env={setting}" for setting in ENVIRONMENT), container)
        buildah("commit", "--quiet", "--rm", container, name)
    finally:
        root.unlink(missing_ok=True)


def bootstrap(root: Path) -> None:
    """Write the base's file system as an archive."""
    excluded = [f"--dpkgopt=path-exclude={pattern}" for pattern in UNUSED]
    repairs = [f"--customize-hook={repair}" for repair in REPAIRS]
    include = f"--include={','.join(PACKAGES)}"
    mirror = [address] if (address := debian.archive()) else []
    command = ["mmdebstrap", "--quiet", "--variant=minbase", *excluded, *repairs, include, SUITE, str(root), *mirror]
    run(["nice", "unshare", "--mount", *command], timeout=1800)


def base_tag() -> str:
    """Return the hash of what decides the base's content."""
    return _key(SUITE, *PACKAGES, *UNUSED, *ENVIRONMENT, *REPAIRS)


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
        return run(["nice", "unshare", "--mount", "buildah", *folders, *words], timeout=timeout)

    def has(self, name: str, label: str = "") -> bool:
        """Tell whether there is an image of this name, with this label if one is named."""
        filters = [f"--filter=label={label}"] if label else []
        names = [image.get("names") or [] for image in json.loads(self("images", *filters, "--json") or "[]")]
        return any(name in of_one for of_one in names)

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


def _content(context: Path) -> list[str]:
    if not (context / "Dockerfile").exists():
        raise ClusterFailed(f"{context} has no Dockerfile")
    files = [path for path in sorted(context.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    return [f"{path.relative_to(context)} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in files]


def _key(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
