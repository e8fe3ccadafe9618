"""Elastic jobs: torchrun's settings for growing, shrinking and restarting ranks, passed to every pod."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.spec import parsers
from ptjob_provider.core.spec.parsers import parse_into, setting

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_PORT = 65535


@dataclass(frozen=True, kw_only=True)
class ElasticPolicy:
    """Settings of an elastic job; None leaves one to the operator."""

    min_replicas: int | None = setting(parsers.integer(1, parsers.MAX_PODS))
    """Pods that a training needs at least. Default of the operator: max_replicas."""
    max_replicas: int | None = setting(parsers.integer(1, parsers.MAX_PODS))
    """Pods that it can use at most. Default of the operator: min_replicas."""
    max_restarts: int | None = setting(parsers.integer(0))
    """How often torchrun restarts the ranks before it gives up. Default of torchrun: 0."""
    rdzv_backend: str | None = setting(parsers.word("c10d", "etcd", "etcd-v2"))
    """Where the ranks meet. Default of the operator: c10d, which needs no further service."""
    rdzv_host: str | None = setting(parsers.text)
    """Host of the meeting point. Default of the operator: worker 0."""
    rdzv_port: int | None = setting(parsers.integer(1, _MAX_PORT))
    """Port of the meeting point. Default of the operator: 23456."""
    rdzv_id: str | None = setting(parsers.text)
    """Name of the meeting."""
    rdzv_conf: Mapping[str, str] | None = setting(parsers.text_map)
    """Further settings of the back-end, such as `{"timeout": "900"}`."""
    standalone: bool | None = setting(parsers.boolean)
    """Whether each pod is a training of its own."""

    @classmethod
    def parse(cls, field: str, value: Any) -> ElasticPolicy:
        """Parse a map of these settings.

        Raises:
            InvalidSpec: a setting is unknown or invalid, or min_replicas is above max_replicas.
        """
        policy = parse_into(cls, parsers.mapping(field, value), prefix=f"{field}.")
        if policy.min_replicas and policy.max_replicas and policy.min_replicas > policy.max_replicas:
            raise InvalidSpec.of(
                f"{field}.min_replicas", policy.min_replicas, f"at most max_replicas, {policy.max_replicas}"
            )
        return policy

    @property
    def default_workers(self) -> int:
        """Return the default number of pods: max_replicas, else min_replicas, else one."""
        return self.max_replicas or self.min_replicas or 1

    def check_workers(self, workers: int) -> None:
        """Check that the training can start with this number of pods.

        Raises:
            InvalidSpec: it would wait for ever for more, or refuse some.
        """
        lowest, highest = self.min_replicas or 1, self.max_replicas or parsers.MAX_PODS
        if not lowest <= workers <= highest:
            raise InvalidSpec.of("workers", workers, "between elastic_policy's min_replicas and max_replicas")
