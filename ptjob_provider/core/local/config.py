"""What an adapter tells the local back-end: where its state lies, what stands in for images, secrets and devices."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ptjob_provider.core.errors import InvalidSpec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Gpus = Literal["refuse", "ignore"] | int

_DEFAULT_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
}
_INHERITED = re.compile(
    r"PATH|HOME|USER|LOGNAME|LANG|LANGUAGE|LC_[A-Z]+|TZ|TMPDIR|LD_LIBRARY_PATH|SSL_CERT_FILE|SSL_CERT_DIR"
)
_UNSAFE = re.compile(r"[\s'\"\\:;,=$`()\[\]{}<>|&*?!#]")


@dataclass(frozen=True, kw_only=True)
class ImageStandIn:
    """A directory that stands in for an image.

    Attributes:
        context: the image's build context; its Dockerfile is read, nothing is built.
        python: the interpreter that stands in for the image's; None takes `LocalConfig.python`.
    """

    context: Path
    python: str | None = None


@dataclass(frozen=True, kw_only=True)
class LocalConfig:
    """How jobs run on this machine.

    Attributes:
        root: where state, logs and claims lie; on a local disk, without characters that a shell would interpret.
        claims: where the claims lie, `claims/<namespace>/<claim>`; None is `root/claims`.
        images: image name → what stands in for it; a name without a tag stands for all tags.
        python: the interpreter for `python` and `torchrun`; None is the one that runs us.
        gpus: `refuse` a job that asks for devices, `ignore` the wish and run it on the CPU, or how many are lent.
        secrets: secret name → key → value, of any namespace; never written to disk.
        config_maps: config map name → key → value, of any namespace.
        restart_backoff: seconds before a container's second restart, then doubled up to thirty times; a kubelet takes
            10.
        environment: what every container inherits from this machine, see `base_environment`.
    """

    root: Path
    claims: Path | None = None
    images: Mapping[str, ImageStandIn] = field(default_factory=dict)
    python: str | None = None
    gpus: Gpus = "refuse"
    secrets: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    config_maps: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    restart_backoff: float = 1.0
    environment: Mapping[str, str] = field(default_factory=lambda: dict(_DEFAULT_ENVIRONMENT))

    def __post_init__(self) -> None:
        for name in ("root", "claims"):
            _check_path(name, getattr(self, name))
        if self.gpus not in ("refuse", "ignore") and not _is_count(self.gpus):
            raise InvalidSpec.of("gpus", self.gpus, "allowed: 'refuse', 'ignore' or a number of devices, 0 or more")
        if self.restart_backoff < 0:
            raise InvalidSpec.of("restart_backoff", self.restart_backoff, "allowed: seconds, 0 or more")

    @property
    def interpreter(self) -> str:
        """The interpreter for containers whose image names no other."""
        return self.python or sys.executable

    def claims_of(self, namespace: str) -> Path:
        """Return the directory that holds this namespace's claims."""
        return (self.claims or self.root / "claims").absolute() / namespace

    def stand_in(self, image: str) -> ImageStandIn | None:
        """Return what stands in for the image: of exactly this name, else of the name without its tag and digest."""
        return self.images.get(image) or self.images.get(untagged(image))


def base_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Pick what containers may inherit from a process's environment: paths and the language, no settings."""
    return _DEFAULT_ENVIRONMENT | {name: value for name, value in environ.items() if _INHERITED.fullmatch(name)}


def untagged(image: str) -> str:
    """Return the image's name without tag and digest; a registry's port stays."""
    name = image.split("@", 1)[0]
    head, _, tail = name.rpartition(":")
    return head if head and "/" not in tail else name


def _check_path(name: str, path: Path | None) -> None:
    if path is not None and _UNSAFE.search(str(path.absolute())):
        rule = "allowed: a path of letters, digits and . _ - + @ ~ %, since it is put into command lines"
        raise InvalidSpec.of(name, str(path), rule)


def _is_count(gpus: object) -> bool:
    return isinstance(gpus, int) and not isinstance(gpus, bool) and gpus >= 0
