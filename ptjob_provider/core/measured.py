"""Peaks of what replicas used while somebody looked, and all that they have written. Pure.

Who measures, and how often, is a back-end's business. A peak between two looks is not seen, so every figure is at least
what it says.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from ptjob_provider.core.identity import USAGE_ANNOTATION
from ptjob_provider.core.versions import known_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ptjob_provider.core.identity import Manifest

_MOST = 64
"""How many replicas a result tells of: it is a row of somebody's database, and an annotation."""

N = TypeVar("N", int, float)


@dataclass(frozen=True, kw_only=True)
class Use:
    """What one replica was seen to use so far; None where nobody measures it.

    Attributes:
        peak_cpu: the most cores at once.
        peak_memory: the most bytes at once.
        disk: bytes written; on one machine only.
        samples: how many looks that rests on.
    """

    peak_cpu: float | None = None
    peak_memory: int | None = None
    disk: int | None = None
    samples: int = 0

    def seen(self, measured: Mapping[str, Any]) -> Use:
        """Add a look at the same pod: `cpu`, `memory` and `disk`, as far as they are known."""
        now = Use(
            peak_cpu=measured.get("cpu"), peak_memory=measured.get("memory"), disk=measured.get("disk"), samples=1
        )
        return replace(self.also(now), samples=self.samples + 1)

    def also(self, other: Use) -> Use:
        """Add what somebody else saw of the same pod: what is written only grows."""
        return Use(
            peak_cpu=_most(self.peak_cpu, other.peak_cpu),
            peak_memory=_most(self.peak_memory, other.peak_memory),
            disk=_most(self.disk, other.disk),
            samples=max(self.samples, other.samples),
        )

    def then(self, other: Use) -> Use:
        """Add what the next pod of the replica used: what both have written counts together."""
        samples = self.samples + other.samples
        return replace(self.also(other), disk=_sum(self.disk, other.disk), samples=samples)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-safe fields."""
        return asdict(self)


def of_pods(pods: Iterable[tuple[str, Use]]) -> dict[str, Use]:
    """Return what each replica used, from what each of its pods did."""
    found: dict[str, Use] = {}
    for replica, use in pods:
        found[replica] = found[replica].then(use) if replica in found else use
    return found


def together(one: Mapping[str, Use], other: Mapping[str, Use]) -> dict[str, Use]:
    """Return what two who looked at the same replicas saw."""
    return {name: one.get(name, Use()).also(other.get(name, Use())) for name in {**one, **other}}


def shown(uses: Mapping[str, Use], *, rank0: str) -> dict[str, Any] | None:
    """Return {replicas: {name: fields of a Use}, left_out} as plain JSON; None if nobody has measured anything.

    Of many replicas, rank 0 and those with the most memory are told of; `left_out` says how many are not.
    """
    known = [name for name, use in uses.items() if use.samples]
    if not known:
        return None
    known.sort(key=lambda name: (name != rank0, -(uses[name].peak_memory or 0), name))
    replicas = {name: uses[name].to_dict() for name in known[:_MOST]}
    return {"replicas": replicas, "left_out": len(known) - len(replicas)}


def to_text(uses: Mapping[str, Use], *, rank0: str) -> str:
    """Return what is noted on a job for whoever reads it later; "" if nobody has measured anything."""
    found = shown(uses, rank0=rank0)
    return json.dumps(found["replicas"], separators=(",", ":")) if found else ""


def stored_in(job: Manifest) -> dict[str, Use]:
    """Return what is noted on a job; nothing if that cannot be read."""
    text = (job["metadata"].get("annotations") or {}).get(USAGE_ANNOTATION) or "{}"
    try:
        return {str(name): Use(**known_fields(Use, fields)) for name, fields in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def _most(one: N | None, other: N | None) -> N | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None and other is None else (one or 0) + (other or 0)
