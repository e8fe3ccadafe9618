"""Define what an informer watches, which event belongs to which object, and which pod to which job. Pure."""

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
    """Jobs that an informer watches. Subscribers with equal scopes share an informer.

    Attributes:
        config: access to the cluster.
        kind: kind of the jobs.
        namespace: namespace of the jobs.
        name: name of a single job; "" for the jobs of the namespace that `ours` selects.
        ours: True: the jobs that have our label. False: those that do not.
    """

    config: ClusterConfig
    kind: str
    namespace: str
    name: str = ""
    ours: bool = True

    @property
    def of_jobs(self) -> dict[str, str]:
        """Return the query parameters that select the jobs."""
        return {"fieldSelector": f"metadata.name={self.name}"} if self.name else {"labelSelector": self._label}

    def of_pods(self, *, older: bool = False) -> dict[str, str]:
        """Return the query parameters that select the pods of the jobs.

        Args:
            older: use the labels of the old operator, see `Kind.is_older`.
        """
        kind = kinds.named(self.kind)
        selector = kind.pod_selector(self.name, older=older)
        needs_no_label = bool(self.name) or not kind.HAS_LABELLED_PODS
        return {"labelSelector": selector if needs_no_label else f"{selector},{self._label}"}

    @property
    def _label(self) -> str:
        return f"{MANAGED_LABEL}=true" if self.ours else f"{MANAGED_LABEL}!=true"

    def has(self, job: Manifest) -> bool:
        """Return whether the scope selects this job of its kind and namespace."""
        labels = job["metadata"].get("labels") or {}
        return bool(self.name) or (labels.get(MANAGED_LABEL) == "true") is self.ours


class PodOwnerIndex:
    """Index of jobs by name, which finds the job of a pod that has the job's name in a label but not its uid.

    Has the jobs of one kind in one namespace, and the pods whose job has not been received yet.
    """

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._jobs: dict[str, tuple[str, str]] = {}
        self._names: dict[str, str] = {}
        self._early: dict[str, dict[str, Manifest]] = {}

    def learn(self, job: Manifest) -> list[Manifest]:
        """Add or update a job, and return the pods of this job name that were received before the job."""
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
        """Return the uid of the pod's job; "" if the job is unknown.

        If the pod names its job without a uid, it belongs to the known job of this name, unless the pod was created
        before that job: then it belongs to an earlier one.
        """
        owner = self._kind.owner_of(pod)
        uid, created = self._jobs.get(owner.name, ("", ""))
        return owner.uid or (uid if str(pod["metadata"].get("creationTimestamp") or "") >= created else "")

    def keep(self, pod: Manifest) -> None:
        """Keep a pod until its job is received."""
        name = self._kind.owner_of(pod).name
        if name and name not in self._jobs:
            self._early.setdefault(name, {})[pod["metadata"]["uid"]] = pod

    def drop(self, pod: Manifest) -> None:
        """Remove a pod that was deleted before its job was received."""
        name = self._kind.owner_of(pod).name
        self._early.get(name, {}).pop(pod["metadata"]["uid"], None)
        if not self._early.get(name, True):
            del self._early[name]

    @property
    def early_uids(self) -> set[str]:
        """Return the uids of the kept pods."""
        return {uid for pods in self._early.values() for uid in pods}

    def drop_missing(self, uids: set[str]) -> None:
        """Remove the pods of these uids, of which no deletion was received: a list does not have them."""
        for pod in [pod for pods in self._early.values() for uid, pod in pods.items() if uid in uids]:
            self.drop(pod)


def by_uid(uid: str) -> str:
    """Return the field selector of the events about one object."""
    return f"involvedObject.uid={uid}"


def by_name(kind: str, name: str) -> str:
    """Return the field selector of the events about all objects that have, or had, this kind and name."""
    return f"involvedObject.kind={kind},involvedObject.name={name}"


def selectors_of(event: Manifest) -> tuple[str, str]:
    """Return the two selectors that match this event."""
    about = event.get("involvedObject") or {}
    return by_uid(about.get("uid") or ""), by_name(about.get("kind") or "", about.get("name") or "")


def created_at(event: Manifest) -> str:
    """Return the event's creation time, which like a job's is by the server's clock; if unset "~", which sorts last."""
    return str((event.get("metadata") or {}).get("creationTimestamp") or "~")
