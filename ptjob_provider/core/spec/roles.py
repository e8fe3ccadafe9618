"""Fields that may differ between rank 0's pod and the others."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.spec import environment, literals, placement
from ptjob_provider.core.spec.resources import Resources, cpu_quantity, memory_quantity
from ptjob_provider.core.spec.settings import parse_into, setting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.spec.environment import EnvVar
    from ptjob_provider.core.spec.job import TrainingJob


@dataclass(frozen=True, kw_only=True)
class RoleFields:
    """Fields that one role may override; names and rules are `TrainingJob`'s."""

    image: str | None = setting(literals.text)
    command: tuple[str, ...] | None = setting(literals.arguments)
    args: tuple[str, ...] | None = setting(literals.arguments)
    env: tuple[EnvVar, ...] | None = setting(environment.environment)
    cpu: str | None = setting(cpu_quantity)
    memory: str | None = setting(memory_quantity)
    gpus: int | None = setting(literals.integer(0))
    container_resources: Resources | None = setting(Resources.parse)
    node_selector: Mapping[str, str] | None = setting(placement.label_map)

    @classmethod
    def parse(cls, field: str, value: Any) -> RoleFields:
        """Parse a map of these fields.

        Raises:
            InvalidSpec: a field is unknown or invalid.
        """
        return parse_into(cls, literals.mapping(field, value), prefix=f"{field}.")

    @classmethod
    def of(cls, job: TrainingJob, own: RoleFields, *, gpu: str) -> RoleFields:
        """Return one role's fields, its own over the job's; env and selector are merged by name."""
        chosen = {each.name: _chosen(getattr(own, each.name), getattr(job, each.name)) for each in fields(cls)}
        for name, resource in _places(gpu):
            if (
                getattr(own, name) is None
                and own.container_resources is not None
                and resource in own.container_resources
            ):
                chosen[name] = None
        if own.container_resources is None and job.container_resources is not None:
            asked_again = [resource for name, resource in _places(gpu) if getattr(own, name) is not None]
            chosen["container_resources"] = job.container_resources.without(*asked_again)
        if job.env is not None and own.env is not None:
            chosen["env"] = environment.merged(job.env, own.env)
        if job.node_selector is not None and own.node_selector is not None:
            chosen["node_selector"] = {**job.node_selector, **own.node_selector}
        return cls(**chosen)


def check_asked_once(asked: TrainingJob | RoleFields, prefix: str, *, gpu: str) -> None:
    """Check that no resource is requested in two places.

    Raises:
        InvalidSpec: `cpu`, `memory` or `gpus` is given as well as the same resource in `container_resources`.
    """
    for name, resource in _places(gpu):
        if (
            getattr(asked, name) is not None
            and asked.container_resources is not None
            and resource in asked.container_resources
        ):
            allowed = f"either {name} or {resource} in `container_resources`"
            raise InvalidSpec.of(f"{prefix}{name}", getattr(asked, name), allowed)


def _places(gpu: str) -> tuple[tuple[str, str], ...]:
    return (("cpu", "cpu"), ("memory", "memory"), ("gpus", gpu))


def _chosen(own: Any, common: Any) -> Any:
    return common if own is None else own
