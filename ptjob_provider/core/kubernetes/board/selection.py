"""Scope of one informer: the queries of its job watch and its pod watch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ptjob_provider.core import kinds
from ptjob_provider.core.identity import MANAGED_LABEL

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kubernetes.config import ClusterConfig


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Scope of an informer; equal ones share it.

    Attributes:
        name: of the one job; "" for all jobs of the namespace that are ours, or are not.
        ours: selects the jobs with our label, else those without.
    """

    config: ClusterConfig
    kind: str
    namespace: str
    name: str = ""
    ours: bool = True

    @property
    def of_jobs(self) -> dict[str, str]:
        """Return the query that selects the jobs."""
        return {"fieldSelector": f"metadata.name={self.name}"} if self.name else {"labelSelector": self._label}

    def of_pods(self, *, older: bool = False) -> dict[str, str]:
        """Return the query that selects their pods by this cluster's operator's labels; see `Kind.is_older`."""
        kind = kinds.named(self.kind)
        selector = kind.pod_selector(self.name, older=older)
        is_told = bool(self.name) or not kind.HAS_LABELLED_PODS
        return {"labelSelector": selector if is_told else f"{selector},{self._label}"}

    @property
    def _label(self) -> str:
        return f"{MANAGED_LABEL}=true" if self.ours else f"{MANAGED_LABEL}!=true"

    def has(self, job: Manifest) -> bool:
        """Return whether a job of this kind and namespace is selected."""
        labels = job["metadata"].get("labels") or {}
        return bool(self.name) or (labels.get(MANAGED_LABEL) == "true") is self.ours
