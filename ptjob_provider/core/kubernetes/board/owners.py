"""Which job a pod belongs to, where its owner reference does not say: by name; the jobs come over another watch.

Pure: it is told of jobs and pods, and asks nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kinds import Kind


class Owners:
    """The jobs of one kind in one namespace, by name, and pods that came before their job was told of."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._jobs: dict[str, tuple[str, str]] = {}
        self._names: dict[str, str] = {}
        self._early: dict[str, dict[str, Manifest]] = {}

    def learn(self, job: Manifest) -> list[Manifest]:
        """Take a job as it is now; returns the pods of its name that came before it."""
        if self._kind.HAS_FIXED_POD_NAMES:
            return []
        meta = job["metadata"]
        self._jobs[meta["name"]] = (meta["uid"], meta["creationTimestamp"])
        self._names[meta["uid"]] = meta["name"]
        return list(self._early.pop(meta["name"], {}).values())

    def forget(self, uid: str) -> None:
        """Take that a job is gone."""
        name = self._names.pop(uid, "")
        if self._jobs.get(name, ("", ""))[0] == uid:
            del self._jobs[name]

    def uid_of(self, pod: Manifest) -> str:
        """Return the uid of the job that the pod belongs to; "" if it is of none that is known.

        A pod that says only the job's name may be an earlier job's, if it was made before this one.
        """
        owner = self._kind.owner_of(pod)
        uid, made_at = self._jobs.get(owner.name, ("", ""))
        return owner.uid or (uid if str(pod["metadata"].get("creationTimestamp") or "") >= made_at else "")

    def keep(self, pod: Manifest) -> None:
        """Keep a pod until its job is told of."""
        name = self._kind.owner_of(pod).name
        if name and name not in self._jobs:
            self._early.setdefault(name, {})[pod["metadata"]["uid"]] = pod

    def drop(self, pod: Manifest) -> None:
        """Take that a pod is gone."""
        name = self._kind.owner_of(pod).name
        self._early.get(name, {}).pop(pod["metadata"]["uid"], None)
        if not self._early.get(name, True):
            del self._early[name]
