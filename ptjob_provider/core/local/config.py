"""Configuration of the local back-end, and the parameters of one job's supervisor."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal, Self

from ptjob_provider.core.errors import InvalidSpec, in_ptjob
from ptjob_provider.core.local.image import ImageFacts
from ptjob_provider.core.spec.pods import NO_SHARED_MEMORY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ptjob_provider.core.local.launch import Stores


NO_IMAGE = "none"
"""Image name of a job that needs no image; no notice mentions it."""

WITHOUT_IMAGE = {"image": NO_IMAGE, "shared_memory": NO_SHARED_MEMORY}
"""Defaults of a job that runs here with this process's Python, and the machine's /dev/shm."""

_DEFAULT_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
}
_INHERITED = re.compile(
    r"PATH|HOME|USER|LOGNAME|LANG|LANGUAGE|LC_[A-Z]+|TZ|TMPDIR|LD_LIBRARY_PATH|SSL_CERT_FILE|SSL_CERT_DIR|CUDA_VISIBLE_DEVICES"
)
_UNSAFE = re.compile(r"[\s'\"\\:;,=$`()\[\]{}<>|&*?!#]")


@dataclass(frozen=True, kw_only=True)
class LocalConfig:
    """Settings of jobs on this machine.

    Attributes:
        root: directory of state, logs and claims (`claims/<namespace>/<claim>`); on a local disk, without characters
            that a shell would interpret.
        images: image name → the build context that replaces the image, whose Dockerfile is read; nothing is built. A
            name without a tag matches all tags.
        python: the interpreter for `python` and `torchrun`; None: the interpreter of this process.
        gpus: the number of devices that jobs may use, or `ignore`: jobs that request devices run on the CPU.
        secrets: secret name → key → value, of any namespace; never written to disk.
        config_maps: config map name → key → value, of any namespace.
        environment: variables that every container inherits, see `base_environment`.
        title: returns an option's name as users write it, for messages.
    """

    root: Path
    images: Mapping[str, Path] = field(default_factory=dict)
    python: str | None = None
    gpus: Literal["ignore"] | int = 0
    secrets: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    config_maps: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=lambda: dict(_DEFAULT_ENVIRONMENT))
    title: Callable[[str], str] = field(default=in_ptjob, repr=False, compare=False)

    def __post_init__(self) -> None:
        if _UNSAFE.search(str(self.root.absolute())):
            rule = "allowed: a path of letters, digits and . _ - + @ ~ %, since it is put into command lines"
            raise InvalidSpec.of("root", str(self.root), rule)
        if self.gpus != "ignore" and (type(self.gpus) is not int or self.gpus < 0):
            raise InvalidSpec.of(self.title("local_gpus"), self.gpus, "allowed: 'ignore' or a number of devices")

    @property
    def interpreter(self) -> str:
        """Return the interpreter for containers whose image has no other."""
        return self.python or sys.executable

    def claims_of(self, namespace: str) -> Path:
        """Return the directory of this namespace's claims."""
        return self.root.absolute() / "claims" / namespace

    def replacement(self, image: str) -> Path | None:
        """Return the image's build context: by its exact name, else by the name without tag and digest."""
        return self.images.get(image) or self.images.get(untagged(image))


def base_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a process that containers inherit: paths, user, locale, GPUs, but no settings."""
    return _DEFAULT_ENVIRONMENT | {name: value for name, value in environ.items() if _INHERITED.fullmatch(name)}


def gpu_ids(environment: Mapping[str, str], most: int) -> list[str]:
    """Return the ids of at most this many GPUs: of those that `CUDA_VISIBLE_DEVICES` allows, or of all.

    CUDA ignores what follows the first id that is none, such as -1.
    """
    allowed = environment.get("CUDA_VISIBLE_DEVICES")
    if allowed is None:
        return [str(number) for number in range(most)]
    ids = (each.strip() for each in allowed.split(","))
    return list(takewhile(lambda each: each[:1] not in {"", "-"}, ids))[:most]


def untagged(image: str) -> str:
    """Return the image's name without tag and digest; a registry's port stays."""
    name = image.split("@", 1)[0]
    head, _, tail = name.rpartition(":")
    return head if head and "/" not in tail else name


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Parameters of one job, which the submitter passes to its supervisor.

    Attributes:
        claims: the directory of the namespace's claims.
        devices: the file whose lock the job with devices has; "" if it runs on the CPU.
        environment: variables that every container inherits.
        python: the interpreter of images without a replacement.
        images: facts about the job's images, by name.
        stores: the secrets and config maps to which jobs can refer.
    """

    claims: str
    devices: str
    environment: Mapping[str, str]
    python: str
    images: Mapping[str, ImageFacts]
    stores: Stores

    def image(self, name: str) -> ImageFacts:
        """Return the facts about an image; without a replacement only the interpreter."""
        return self.images.get(name) or ImageFacts(python=self.python)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Return the setup with the fields of `dataclasses.asdict`."""
        images = {name: ImageFacts(**facts) for name, facts in fields["images"].items()}
        return cls(**{**fields, "images": images})
