"""Index of jobs by name, for pods whose owner reference does not lead to the job; jobs arrive over another watch.

Pure: updated with jobs and pods, makes no requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kinds import Kind


class Owners:
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
