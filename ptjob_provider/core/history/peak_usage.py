"""Combine measurements of the replicas' usage: peak CPU and memory. Pure.

The back-end measures. Peaks between two measurements are missed, so every figure is a lower bound.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from ptjob_provider.core.identity import USAGE_ANNOTATION, annotation_of
from ptjob_provider.core.versions import MALFORMED, Record, known_fields, read_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ptjob_provider.core.identity import Manifest

_MOST = 64
"""Maximum replicas in a result, which is stored in a database row and an annotation."""

N = TypeVar("N", int, float)


@dataclass(frozen=True, kw_only=True)
class PeakUsage(Record):
    """Usage of one replica so far; None for figures that are not measured.

    Attributes:
        peak_cpu: highest number of cores.
        peak_memory: highest number of bytes.
        samples: number of measurements.
    """

    peak_cpu: float | None = None
    peak_memory: int | None = None
    samples: int = 0

    def with_sample(self, measured: Mapping[str, Any]) -> PeakUsage:
        """Return the usage with another measurement of the same pod: `cpu` and `memory`, as far as known."""
        now = PeakUsage(peak_cpu=measured.get("cpu"), peak_memory=measured.get("memory"), samples=1)
        return replace(self.also(now), samples=self.samples + 1)

    def also(self, other: PeakUsage) -> PeakUsage:
        """Return the usage combined with another observer's usage of the same pod, by taking the higher figures."""
        return PeakUsage(
            peak_cpu=_most(self.peak_cpu, other.peak_cpu),
            peak_memory=_most(self.peak_memory, other.peak_memory),
            samples=max(self.samples, other.samples),
        )

    def then(self, other: PeakUsage) -> PeakUsage:
        """Return the usage combined with that of the replica's next pod."""
        return replace(self.also(other), samples=self.samples + other.samples)


def of_pods(pods: Iterable[tuple[str, PeakUsage]]) -> dict[str, PeakUsage]:
    """Return the usage of each replica from the usage of its pods."""
    usage: dict[str, PeakUsage] = {}
    for replica, use in pods:
        usage[replica] = usage[replica].then(use) if replica in usage else use
    return usage


def together(one: Mapping[str, PeakUsage], other: Mapping[str, PeakUsage]) -> dict[str, PeakUsage]:
    """Return the usage by replica, combined from two observers of the same pods."""
    return {name: one.get(name, PeakUsage()).also(other.get(name, PeakUsage())) for name in {**one, **other}}


def shown(uses: Mapping[str, PeakUsage], *, rank0: str) -> dict[str, Any] | None:
    """Return {replicas: {name: fields of a `PeakUsage`}, left_out} as plain JSON; None without measurements.

    Of more than 64 replicas, includes rank 0 and the replicas with the most memory; `left_out` counts the others.
    """
    known = [name for name, use in uses.items() if use.samples]
    if not known:
        return None
    known.sort(key=lambda name: (name != rank0, -(uses[name].peak_memory or 0), name))
    replicas = {name: uses[name].to_dict() for name in known[:_MOST]}
    return {"replicas": replicas, "left_out": len(known) - len(replicas)}


def to_text(uses: Mapping[str, PeakUsage], *, rank0: str) -> str:
    """Return the text of the usage annotation; "" without measurements."""
    peaks = shown(uses, rank0=rank0)
    return json.dumps(peaks["replicas"], separators=(",", ":")) if peaks else ""


def stored_in(job: Manifest) -> dict[str, PeakUsage]:
    """Return the usage that is annotated on a job; {} if the annotation is missing or unreadable."""
    text = annotation_of(job, USAGE_ANNOTATION)
    try:
        return {name: PeakUsage(**known_fields(PeakUsage, fields)) for name, fields in read_object(text).items()}
    except MALFORMED:
        return {}


def _most(one: N | None, other: N | None) -> N | None:
    return max((each for each in (one, other) if each is not None), default=None)
