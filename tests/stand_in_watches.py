"""Stand-in for an API server that serves watches of jobs and pods, refuses them, or goes back to an older state."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import ClusterError, ClusterUnavailable, JobNotFound, PermissionDenied, PTJobError
from ptjob_provider.core.identity import MANAGED_LABEL, JobRef
from ptjob_provider.core.kubernetes.client.http import Page

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    import pytest

    from ptjob_provider.core.backend import Observation
    from ptjob_provider.core.identity import Manifest

_SILENCE = 150.0
_TIMEOUT = 30.0
"""Seconds after which a client ends a watch or a request without any answer."""

FORBIDDEN = PermissionDenied('read pods in team: pods is forbidden: User "ptjob" cannot watch pods (403)', code=403)


class StandInCluster:
    """Replaces a `Client`.

    Attributes:
        refused: Errors by verb and plural, such as ("watch", "pods").
        opened: Number of watches that were requested.
        is_mute: True if a watch from an unknown future version is silent instead of refused.
        bookmarks: Seconds between bookmarks of a watch; None for none.
        dead: Plurals whose watches and requests get no answer and no end, as from a lost connection.
        dead_watches: Plurals of which only the watches are dead.
        deleted: Names of the deleted jobs; `on_delete` is called before each deletion that is carried out.
        conflicts: Number of deletions before which the operator writes another status.
    """

    def __init__(self) -> None:
        self.log_streams = asyncio.Semaphore(10)
        self.refused: dict[tuple[str, str], PTJobError] = {}
        self.opened = 0
        self.is_mute = False
        self.bookmarks: float | None = None
        self.dead: set[str] = set()
        self.dead_watches: set[str] = set()
        self.deleted: list[str] = []
        self.on_delete: Callable[[Manifest], None] = lambda _: None
        self.conflicts = 0
        self.preconditions: list[Manifest] = []
        self._version = 0
        self._behind: Any = None
        self._objects: dict[str, dict[str, Manifest]] = {"pytorchjobs": {}, "trainjobs": {}, "pods": {}}
        self._history: list[tuple[str, str, Manifest]] = []
        self._watches: list[tuple[str, asyncio.Queue[bytes | None]]] = []

    def serve(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Replace the client of every informer, and shorten the pauses between retries."""

        @asynccontextmanager
        async def shared_client(_: object) -> AsyncIterator[StandInCluster]:
            yield self

        monkeypatch.setattr("ptjob_provider.core.kubernetes.informer.informer.shared_client", shared_client)
        monkeypatch.setattr("ptjob_provider.core.kubernetes.backend.shared_client", shared_client)
        monkeypatch.setattr("ptjob_provider.core.kubernetes.informer.reflector._PAUSES", (0.01, 0.01))

    # --- changes of state

    def put(self, plural: str, found: Manifest) -> Manifest:
        """Create or update an object."""
        name, objects = found["metadata"]["name"], self._objects[plural]
        self._version += 1
        after = copy.deepcopy(found)
        after["metadata"]["resourceVersion"] = str(self._version)
        self._tell(plural, "MODIFIED" if name in objects else "ADDED", after)
        objects[name] = after
        return after

    def found(self, plural: str, name: str) -> Manifest | None:
        """Return an object as the server has it."""
        return self._objects[plural].get(name)

    def remove(self, plural: str, name: str) -> None:
        self._version += 1
        gone = self._objects[plural].pop(name)
        gone["metadata"]["resourceVersion"] = str(self._version)
        self._tell(plural, "DELETED", gone)

    def backup(self) -> Any:
        """Return the state as in etcd."""
        return copy.deepcopy((self._version, self._objects))

    def restore(self, backup: Any) -> None:
        """Return to the state of the backup, without history, and end every watch."""
        self._version, self._objects = copy.deepcopy(backup)
        self._history = []
        self.cut()

    def fall_behind(self, backup: Any) -> None:
        """Forget all versions, and serve the state of the backup to new lists until `catch_up`.

        Reads of a single object return the current state, as on a real server.
        """
        self._behind = copy.deepcopy(backup)
        self.cut()

    def catch_up(self) -> None:
        """Send the changes since the backup, and serve the current state from now on."""
        version, _ = self._behind
        self._behind = None
        for plural, events in self._watches:
            self._tell_since(version, plural, events)

    def cut(self) -> None:
        for _, events in self._watches:
            events.put_nowait(None)
        self._watches = []

    def _tell(self, plural: str, kind: str, found: Manifest) -> None:
        self._history.append((plural, kind, copy.deepcopy(found)))
        if self._behind:
            return
        for watched, events in self._watches:
            if watched == plural:
                events.put_nowait(_event(kind, found))

    def _tell_since(self, version: int, plural: str, events: asyncio.Queue[bytes | None]) -> None:
        for changed, kind, found in self._history:
            if changed == plural and int(found["metadata"]["resourceVersion"]) > version:
                events.put_nowait(_event(kind, found))

    async def until_opened(self, number: int) -> None:
        """Wait until this number of watches was requested."""
        async with asyncio.timeout(30):
            while self.opened < number:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.01)

    # --- requests

    @asynccontextmanager
    async def stream(self, path: str, **query: Any) -> AsyncIterator[AsyncGenerator[bytes, None]]:
        plural = path.rpartition("/")[2]
        if plural == "log":
            yield self._log(path.split("/")[-2])
            return
        if "watch" not in query:
            raise ClusterError(f"read {path}: there is no metrics server", code=404)
        self.opened += 1
        await self._answer("watch", plural)
        events = asyncio.Queue[bytes | None]()
        self._begin(plural, query["resourceVersion"], events)
        self._watches.append((plural, events))

        async def chunks() -> AsyncGenerator[bytes, None]:
            while (chunk := await self._next(plural, events)) is not None:
                yield chunk

        yield chunks()

    async def _next(self, plural: str, events: asyncio.Queue[bytes | None]) -> bytes | None:
        """Return what the watch sends next; a bookmark after each minute in which nothing happens."""
        chunk: bytes | None = None
        try:
            async with asyncio.timeout(self.bookmarks):
                chunk = await events.get()
        except TimeoutError:
            chunk = _event("BOOKMARK", {"metadata": {"resourceVersion": str(self._version)}})
        if plural in self.dead | self.dead_watches:
            await asyncio.sleep(_SILENCE)
            raise ClusterUnavailable(f"watch {plural} in team: no answer in time")
        return chunk

    async def _log(self, name: str) -> AsyncGenerator[bytes, None]:
        """Yield the log of a program that writes nothing: it ends with the pod."""
        while self._objects["pods"].get(name, {}).get("status", {}).get("phase") == "Running":  # noqa: ASYNC110
            await asyncio.sleep(60)
        return
        yield b""

    async def delete(self, path: str, options: Manifest) -> None:
        plural, name = path.split("/")[-2:]
        await self._answer("delete", plural)
        self.preconditions.append(options["preconditions"])
        if self.conflicts and "resourceVersion" in options["preconditions"]:
            self.conflicts -= 1
            self.put(plural, self._objects[plural][name])
        found = self._objects[plural].get(name)
        if found is None:
            raise JobNotFound(f"{name} not found", code=404)
        wanted, meta = options["preconditions"], found["metadata"]
        if (
            wanted["uid"] != meta["uid"]
            or wanted.get("resourceVersion", meta["resourceVersion"]) != (meta["resourceVersion"])
        ):
            raise ClusterError("Precondition failed", code=409, reason="Conflict")
        self.on_delete(found)
        self.deleted.append(name)
        self.remove(plural, name)
        for each in [*self._objects["pods"]]:
            self.remove("pods", each)

    async def patch(self, path: str, change: Manifest, **_: str) -> None:
        """Merge annotations."""
        plural, name = path.split("/")[-2:]
        await self._answer("patch", plural)
        if name not in self._objects[plural]:
            raise JobNotFound(f"{name} not found", code=404)
        found = copy.deepcopy(self._objects[plural][name])
        found["metadata"]["annotations"] |= change["metadata"].get("annotations") or {}
        self.put(plural, found)

    async def _answer(self, verb: str, plural: str) -> None:
        """Raise the scripted refusal; a dead server answers nothing."""
        if plural in self.dead or (verb == "watch" and plural in self.dead_watches):
            await asyncio.sleep(_SILENCE if verb == "watch" else _TIMEOUT)
            raise ClusterUnavailable(f"{verb} {plural} in team: no answer in time")
        self._check(verb, plural)

    def _begin(self, plural: str, since: str, events: asyncio.Queue[bytes | None]) -> None:
        if self._behind and int(since) == self._behind[0]:
            return
        if self._behind:
            raise ClusterError(f"read {plural} in team: too old resource version (410 Expired)", code=410)
        if int(since) > self._version and not self.is_mute:
            text = f"Too large resource version: {since}, current: {self._version}"
            raise ClusterUnavailable(
                f"read {plural} in team: Timeout: {text} (504 Timeout)", code=504, reason="Timeout"
            )
        self._tell_since(int(since), plural, events)

    async def object(self, path: str) -> Manifest:
        plural, name = path.split("/")[-2:]
        await self._answer("get", plural)
        if name not in self._objects[plural]:
            raise JobNotFound(f"{name} not found", code=404)
        return copy.deepcopy(self._objects[plural][name])

    async def get(self, path: str, **_: str) -> Manifest:
        """Return an empty list with the current version."""
        return {"kind": "List", "metadata": {"resourceVersion": str(self._version)}, "items": []}

    async def items(self, path: str, **_: str) -> list[Manifest]:
        """Return all objects of a kind; there are no events."""
        plural = path.rpartition("/")[2]
        await self._answer("list", plural)
        return copy.deepcopy([*self._objects.get(plural, {}).values()])

    async def pages(self, path: str, **_: str) -> AsyncGenerator[Page, None]:
        """Yield all objects of a kind as one page; until `catch_up`, those of the backup."""
        plural = path.rpartition("/")[2]
        await self._answer("list", plural)
        version, objects = copy.deepcopy(self._behind or (self._version, self._objects))
        yield Page(items=[*objects.get(plural, {}).values()], version=str(version))

    def _check(self, verb: str, plural: str) -> None:
        if error := self.refused.get((verb, plural)):
            raise error


def _event(kind: str, found: Manifest) -> bytes:
    return json.dumps({"type": kind, "object": found}).encode() + b"\n"


def job(name: str = "digits", *conditions: str) -> Manifest:
    """Return one of our jobs, with one pod."""
    said = {"status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-11-20T12:00:00Z"}
    role = {"replicas": 1, "template": {"spec": {"containers": [{"name": "pytorch", "image": "i"}]}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {
            "namespace": "team",
            "name": name,
            "uid": f"uid-{name}",
            "creationTimestamp": "2026-11-20T12:00:00Z",
            "labels": {MANAGED_LABEL: "true"},
            "annotations": {},
        },
        "spec": {"runPolicy": {"cleanPodPolicy": "All"}, "pytorchReplicaSpecs": {"Master": role}},
        "status": {"startTime": "2026-11-20T12:00:00Z", "conditions": [{"type": each, **said} for each in conditions]},
    }


def pod(name: str = "digits", phase: str = "Running", *, code: int = 0) -> Manifest:
    times = {"startedAt": "2026-11-20T12:00:10Z"}
    ended = {"terminated": {"exitCode": code, "reason": "Error", "finishedAt": "2026-11-20T12:01:00Z", **times}}
    state = {"running": times} if phase == "Running" else ended
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": name, "uid": f"uid-{name}"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": "team",
            "name": f"{name}-master-0",
            "uid": f"pod-{name}",
            "creationTimestamp": "2026-11-20T12:00:05Z",
            "labels": {
                "training.kubeflow.org/job-name": name,
                "training.kubeflow.org/replica-type": "master",
                "training.kubeflow.org/replica-index": "0",
                MANAGED_LABEL: "true",
            },
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {"nodeName": "n", "containers": [{"name": "pytorch"}], "restartPolicy": "Never"},
        "status": {
            "phase": phase,
            "containerStatuses": [{"name": "pytorch", "restartCount": 0, "state": state}],
        },
    }


def ref_of(found: Manifest) -> JobRef:
    return JobRef.of(found)


async def until(watch: AsyncGenerator[Observation, None], holds: Callable[[Observation], bool]) -> Observation:
    """Return the first observation for which the condition holds."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(30):
            async for seen in watch:
                if holds(seen):
                    return seen
    raise AssertionError("the watch ended, or half a minute passed, before that was seen")
