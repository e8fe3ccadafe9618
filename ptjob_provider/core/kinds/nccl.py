"""Replace `--backend nccl` by another backend for jobs that are declared to have no GPU for NCCL.

Only a container's command and arguments are changed: `--backend nccl`, `--dist-backend=nccl` and the like, as separate
words or within a shell's line. Other sources of the setting are left alone.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from ptjob_provider.core.kinds.podtemplate import map_containers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.spec import TrainingJob

_OPTION = re.compile(r"--?[\w-]*backend", re.IGNORECASE)
_SAID = re.compile(rf"(?<![^\s\"'])({_OPTION.pattern}(?:=|\s+)[\"']?)nccl(?![\w:,.-])", re.IGNORECASE)


def without_nccl(
    roles: Sequence[tuple[str, Manifest]], job: TrainingJob, template: TrainingJob | None
) -> tuple[list[Manifest], tuple[str, ...]]:
    """Return the templates with `backend_without_gpu` in place of NCCL, and a sentence for each changed container.

    Args:
        roles: each role's name, and the template of its pods.
        job: the specification.
        template: the installation's.
    """
    backend = job.backend_without_gpu or (template.backend_without_gpu if template else None)
    if backend is None:
        return [found for _, found in roles], ()
    told: list[str] = []

    def changed(role: str, container: Manifest) -> Manifest:
        parts = {name: _replaced(container[name], backend) for name in ("command", "args") if container.get(name)}
        if all(parts[name] == container[name] for name in parts):
            return container
        told.append(
            f"{role}: container {container['name']} is started with the backend {backend} instead of nccl: "
            f"backend_without_gpu={backend} says that there is no GPU"
        )
        return {**container, **parts}

    return [map_containers(found, partial(changed, role)) for role, found in roles], tuple(told)


def _replaced(words: Sequence[str], backend: str) -> list[str]:
    """Return the words with NCCL replaced, also where option and value are two words."""
    before = ["", *words]
    return [
        backend if word.lower() == "nccl" and _OPTION.fullmatch(option) else _SAID.sub(rf"\g<1>{backend}", word)
        for option, word in zip(before, words, strict=False)
    ]
