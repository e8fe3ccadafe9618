"""Scope of an informer: the queries of its watches, event selectors, and pods without an owner reference. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ptjob_provider.core import kinds
from ptjob_provider.core.identity import MANAGED_LABEL

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kinds import Kind
    from ptjob_provider.core.kubernetes.config import ClusterConfig


@dataclass(frozen=True, kw_only=True)
class WatchScope:
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


class PodOwnerIndex:
    """The jobs of one kind in one namespace, by name, and pods that arrived before their job."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._jobs: dict[str, tuple[str, str]] = {}
        self._names: dict[str, str] = {}
        self._early: dict[str, dict[str, Manifest]] = {}

    def learn(self, job: Manifest) -> list[Manifest]:
        """Add or update a job, and return the pods of its name that arrived before it."""
        if self._kind.HAS_FIXED_POD_NAMES:
            return []
        meta = job["metadata"]
        self._jobs[meta["name"]] = (meta["uid"], meta["creationTimestamp"])
        self._names[meta["uid"]] = meta["name"]
        return list(self._early.pop(meta["name"], {}).values())

    def forget(self, uid: str) -> None:
        """Remove a job."""
        name = self._names.pop(uid, "")
        if self._jobs.get(name, ("", ""))[0] == uid:
            del self._jobs[name]

    def uid_of(self, pod: Manifest) -> str:
        """Return the uid of the pod's job; "" if it belongs to no known one.

        A pod that only has the job's name belongs to an earlier job if it was created before this one.
        """
        owner = self._kind.owner_of(pod)
        uid, made_at = self._jobs.get(owner.name, ("", ""))
        return owner.uid or (uid if str(pod["metadata"].get("creationTimestamp") or "") >= made_at else "")

    def keep(self, pod: Manifest) -> None:
        """Keep a pod until its job arrives."""
        name = self._kind.owner_of(pod).name
        if name and name not in self._jobs:
            self._early.setdefault(name, {})[pod["metadata"]["uid"]] = pod

    def drop(self, pod: Manifest) -> None:
        """Remove a pod."""
        name = self._kind.owner_of(pod).name
        self._early.get(name, {}).pop(pod["metadata"]["uid"], None)
        if not self._early.get(name, True):
            del self._early[name]


def by_uid(uid: str) -> str:
    """Return the selector of the events about one object."""
    return f"involvedObject.uid={uid}"


def by_name(kind: str, name: str) -> str:
    """Return the selector of events about an object known by name only; events of its predecessors match, too."""
    return f"involvedObject.kind={kind},involvedObject.name={name}"


def selectors_of(event: Manifest) -> tuple[str, str]:
    """Return the two selectors that match this event."""
    about = event.get("involvedObject") or {}
    return by_uid(about.get("uid") or ""), by_name(about.get("kind") or "", about.get("name") or "")


def created_at(event: Manifest) -> str:
    """Return the event's creation on the server, whose clock dates jobs as well; without one, sorts last."""
    return str((event.get("metadata") or {}).get("creationTimestamp") or "~")
