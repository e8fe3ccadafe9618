"""Render `torchrunConfig`: T9k builds torchrun's command line itself, and ignores the container's command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.spec import TrainingJob

_BEGINNINGS = (
    ("torchrun",),
    ("python", "-m", "torch.distributed.run"),
    ("python3", "-m", "torch.distributed.run"),
)


def torchrun_config(job: TrainingJob, found: Mapping[str, Any] | None) -> Manifest | None:
    """Return the torchrun configuration; None if torchrun does not start the program.

    Raises:
        InvalidSpec: T9k does not support a part of the elastic policy.
    """
    policy = job.elastic_policy
    is_asked = begins_with_torchrun(job.command) or job.nproc_per_node is not None or policy is not None
    if not is_asked:
        return dict(found) if found is not None else None
    config: Manifest = {**(found or {}), "enabled": True}
    if job.nproc_per_node is not None:
        config["procPerNode"] = str(job.nproc_per_node)
    elif "procPerNode" not in config:
        config["procPerNode"] = "gpu" if job.gpus else "1"
    if policy is not None:
        for name in ("rdzv_host", "rdzv_port", "rdzv_id", "rdzv_conf", "standalone"):
            if getattr(policy, name) is not None:
                raise InvalidSpec(f"elastic_policy.{name}: a PyTorchTrainingJob has no place for it; leave it out")
        said = {"maxRestarts": policy.max_restarts, "rdzvBackend": policy.rdzv_backend}
        config |= {name: part for name, part in said.items() if part is not None}
    return config


def begins_with_torchrun(command: Sequence[str] | None) -> bool:
    """Return whether a command is torchrun's."""
    return _beginning(command or ()) > 0


def as_arguments(container: Manifest) -> Manifest:
    """Return a container whose program torchrun starts: script and arguments as `args`, and no command.

    Raises:
        InvalidSpec: the command is not torchrun's, so it would be ignored.
    """
    command = container.get("command") or []
    if not command:
        return container
    beginning = _beginning(command)
    if not beginning:
        raise InvalidSpec.of("command", command, "torchrun, script and options: T9k starts its processes by torchrun")
    rest = {name: part for name, part in container.items() if name != "command"}
    return {**rest, "args": [*command[beginning:], *(container.get("args") or [])]}


def _beginning(command: Sequence[str]) -> int:
    return next((len(words) for words in _BEGINNINGS if tuple(command[: len(words)]) == words), 0)
