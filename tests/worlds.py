"""A back-end under the contract, with helpers to build a job, wait for an observation and read a log."""

from __future__ import annotations

import asyncio
import textwrap
from contextlib import aclosing, nullcontext
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Any

import pytest

from ptjob_provider.core import kinds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from ptjob_provider.core.backend import Backend, Observation
    from ptjob_provider.core.identity import JobRef, Manifest
    from ptjob_provider.core.logs import LogCursor, LogLine

PATIENCE = 600.0
"""Seconds after which a test stops waiting and fails."""

ON_CLUSTER = pytest.mark.parametrize("world", [pytest.param("kubernetes", marks=pytest.mark.cluster)], indirect=True)
"""Marks tests of what only an operator does, such as restarts: not part of the contract."""

OVER = {"Succeeded", "Failed"}
"""Phases of an ended pod."""

STATE: dict[str, Any] = {
    "container": {"volumeMounts": [{"name": "state", "mountPath": "/state"}]},
    "pod": {"volumes": [{"name": "state", "persistentVolumeClaim": {"claimName": "state"}}]},
}
"""A claim at /state, in which a test releases held programs."""


@dataclass(kw_only=True)
class World:
    """A back-end, and the jobs that a test has submitted to it.

    Attributes:
        backend: Back-end under test.
        image: Image with Python, a shell and the usual programs.
        namespace: Namespace of the test's jobs.
        patience: Seconds after which a test stops waiting and fails.
        without_kill: Keeps a job's processes from being killed meanwhile, if their grace period is short.
        first_kept_run: Of three runs of a container, the first one whose log can still be read after the last.
        prepare: Creates the requirements of a manifest, such as claims, and adapts it to the back-end's timing.
        claim: Returns the local path of a mounted claim's files.
        annotate: Sets annotations of a claim, creating it if necessary; None as a value removes one. Not set in worlds
            whose tests annotate nothing.
        refs: Submitted jobs.
    """

    backend: Backend
    image: str
    claim: Callable[[str], Path]
    annotate: Callable[[str, Mapping[str, str | None]], None] | None = None
    namespace: str = "default"
    patience: float = PATIENCE
    without_kill: Callable[[JobRef], AbstractContextManager[object]] = nullcontext
    first_kept_run: int = 0
    prepare: Callable[[Manifest], Manifest] = field(default=lambda manifest: manifest)
    refs: list[JobRef] = field(default_factory=list)

    async def submit(self, manifest: Manifest) -> JobRef:
        """Submit a job, which is deleted at the end of the test."""
        ref = await self.backend.submit(self.prepare(manifest))
        self.refs.append(ref)
        return ref

    async def run(self, manifest: Manifest) -> tuple[JobRef, list[Observation]]:
        """Submit a job and return all observations until it ended."""
        ref = await self.submit(manifest)
        return ref, await self.observe(ref, has_ended)

    async def observe(self, ref: JobRef, until: Callable[[Observation], bool]) -> list[Observation]:
        """Return the observations up to the first one for which `until` is true."""
        seen: list[Observation] = []
        async with asyncio.timeout(self.patience), aclosing(self.backend.watch(ref)) as watch:
            async for observation in watch:
                seen.append(observation)
                if until(observation):
                    return seen
        raise AssertionError(f"the watch ended before what was waited for: {seen[-1]}")

    def release(self, name: str = "go") -> None:
        """Release the programs that wait for this file below /state."""
        (self.claim("state") / name).touch()

    async def lines(
        self, ref: JobRef, replica: str, since: LogCursor | None = None, *, release_at: str | None = None
    ) -> list[LogLine]:
        """Follow a replica's log to its end; with `release_at`, release the program when that line has arrived."""
        found = []
        async with asyncio.timeout(self.patience), aclosing(self.backend.logs(ref, replica, since=since)) as lines:
            async for line in lines:
                found.append(line)
                if line.text == release_at:
                    self.release()
        return found

    async def text(self, ref: JobRef, replica: str) -> list[str]:
        """Return a replica's log without notices."""
        return [line.text for line in await self.lines(ref, replica) if not line.notice]

    async def line(self, ref: JobRef, replica: str, text: str) -> LogLine:
        """Return the first line that contains the text, as soon as it can be read."""
        async with asyncio.timeout(self.patience), aclosing(self.backend.logs(ref, replica)) as lines:
            async for line in lines:
                if text in line.text:
                    return line
        raise AssertionError(f"{replica} never wrote {text!r}")

    async def gone(self, ref: JobRef) -> None:
        """Wait until nothing of the job runs."""
        async with asyncio.timeout(self.patience):
            while not await self.backend.pods_gone(ref):  # noqa: ASYNC110 - the port has no event for it
                await asyncio.sleep(0.05)

    async def clear(self) -> None:
        """Delete the test's jobs, and wait until they are gone."""
        for ref in self.refs:
            await self.backend.delete(ref)
        for ref in self.refs:
            await self.gone(ref)

    def job(
        self,
        name: str,
        master: str | list[str] | None = None,
        worker: str | list[str] | None = None,
        *,
        workers: int = 1,
        policy: str | None = "Never",
        container: Mapping[str, Any] | None = None,
        pod: Mapping[str, Any] | None = None,
        spec: Mapping[str, Any] | None = None,
        **run_policy: Any,
    ) -> Manifest:
        """Build a PyTorchJob; a string is a Python program, a list is a command."""
        programs = {"Master": (master, 1), "Worker": (worker, workers)}
        replicas = {
            role: replica(program, count=count, image=self.image, policy=policy, container=container, pod=pod)
            for role, (program, count) in programs.items()
            if program is not None
        }
        return {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"pytorchReplicaSpecs": replicas, "runPolicy": run_policy, **(spec or {})},
        }


def replica(
    program: str | list[str],
    *,
    count: int,
    image: str,
    policy: str | None,
    container: Mapping[str, Any] | None = None,
    pod: Mapping[str, Any] | None = None,
) -> Manifest:
    """Build the spec of one role."""
    command = ["python", "-c", textwrap.dedent(program)] if isinstance(program, str) else program
    first = {"name": "pytorch", "image": image, "command": command, "terminationMessagePolicy": "FallbackToLogsOnError"}
    template = {"spec": {"containers": [{**first, **(container or {})}], **(pod or {})}}
    return {"replicas": count, "template": template, **({"restartPolicy": policy} if policy else {})}


def held(program: str = "", *, until: str = "go") -> str:
    """Return a Python program that waits until its test releases it; its job needs STATE."""
    waits = f"import pathlib, time\nwhile not pathlib.Path('/state/{until}').exists(): time.sleep(0.05)\n"
    return waits + textwrap.dedent(program)


def differences(found: Sequence[str], expected: Sequence[str]) -> list[tuple[int, str | None, str | None]]:
    """Return the first five differences between two long logs: index, actual and expected line."""
    pairs = enumerate(zip_longest(found, expected))
    return list(islice(((number, *pair) for number, pair in pairs if pair[0] != pair[1]), 5))


def condition(job: Manifest | None, kind: str) -> Manifest | None:
    """Return the job's condition of this type if it is true."""
    conditions = (job or {}).get("status", {}).get("conditions", ())
    return next((one for one in conditions if one["type"] == kind and one["status"] == "True"), None)


def types(job: Manifest | None) -> list[tuple[str, str]]:
    """Return the type and status of the job's conditions in order."""
    return [(one["type"], one["status"]) for one in (job or {}).get("status", {}).get("conditions", ())]


def has_ended(observation: Observation) -> bool:
    """Return whether the job has ended."""
    return observation.job is not None and kinds.read_status(observation.job).phase.is_terminal


def has_ended_with(*pods: str) -> Callable[[Observation], bool]:
    """Return a condition for the end of the job and these pods; they are reported by separate watches."""

    def asked(observation: Observation) -> bool:
        over = {each["metadata"]["name"] for each in observation.pods if each["status"]["phase"] in OVER}
        return has_ended(observation) and over >= {*pods}

    return asked


def is_running(observation: Observation, *, replicas: int = 1) -> bool:
    """Return whether this number of training containers runs."""
    states = [
        container["state"] for pod in observation.pods for container in pod["status"].get("containerStatuses", ())
    ]
    return sum("running" in state for state in states) >= replicas


def terminations(seen: list[Observation], pod: str) -> list[Manifest]:
    """Return the terminations of a pod's training container, without duplicates, in the order of observation."""
    found: dict[str, Manifest] = {}
    for observation in seen:
        for each in observation.pods:
            if each["metadata"]["name"] == pod:
                found |= _ends(each)
    return list(found.values())


def _ends(pod: Manifest) -> dict[str, Manifest]:
    found = {}
    for container in pod["status"].get("containerStatuses", ()):
        if container["name"] == "pytorch":
            ends = [container[key].get("terminated") for key in ("lastState", "state")]
            found |= {
                f"{pod['metadata']['uid']} {end.get('containerID') or end['startedAt']}": end for end in ends if end
            }
    return found
