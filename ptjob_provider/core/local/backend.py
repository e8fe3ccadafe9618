"""Implements the port on this machine: submits jobs, and reads the state that their supervisors write."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from ptjob_provider.core import probe
from ptjob_provider.core.backend import Observation
from ptjob_provider.core.errors import InvalidSpec, OutputsNotVerified, UnsupportedByBackend
from ptjob_provider.core.hub import joined
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.local import metering, objects, submission
from ptjob_provider.core.local.claim import watched_claim
from ptjob_provider.core.local.files import read_json
from ptjob_provider.core.local.follow import ReplicaLog
from ptjob_provider.core.local.looking import Looking
from ptjob_provider.core.local.state import with_status
from ptjob_provider.core.local.volumes import claim_directory, inside
from ptjob_provider.core.outputs import OutputReport

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path
    from typing import Any

    from ptjob_provider.core.backend import Claim
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.local.config import LocalConfig
    from ptjob_provider.core.local.files import JobFiles
    from ptjob_provider.core.local.state import JobState
    from ptjob_provider.core.logs import LogCursor, LogLine
    from ptjob_provider.core.measured import Use
    from ptjob_provider.core.outputs import ResolvedOutput, ResolvedOutputs


class LocalBackend:
    """Runs jobs as processes of this machine; implements `backend.Backend`.

    Any number of processes may use one root at once. The documentation lists the differences from a cluster.
    """

    def __init__(self, config: LocalConfig) -> None:
        if sys.platform != "linux":
            raise UnsupportedByBackend.of("[ptjob] backend", "jobs run on this machine only if it is a Linux")
        self._store = objects.JobStore(config.root)
        self._config = config

    async def submit(self, manifest: Manifest, *, secret: Manifest | None = None) -> JobRef:
        """Create the job and start its supervisor. See `Backend.submit`."""
        return await asyncio.to_thread(submission.submit, manifest, self._config, self._store, secret=secret)

    async def give_secret(self, ref: JobRef, secret: Manifest) -> None:
        """Do nothing: a local job has its Secret from the start. See `Backend.give_secret`."""

    async def ensure_tensorboard(self, ref: JobRef) -> str:  # noqa: ARG002 - the port's
        """Return "": `ptjob tensorboard` shows a local job, as its notices say."""
        return ""

    async def get(self, kind: str, namespace: str, name: str) -> Manifest:
        """Return the job's object; see `Backend.get`."""
        return await asyncio.to_thread(self._store.get, kind, namespace, name)

    async def list(self, kind: str, namespace: str, labels: Mapping[str, str]) -> Sequence[Manifest]:
        """Return the objects with these labels; see `Backend.list`."""
        return await asyncio.to_thread(self._store.list, kind, namespace, labels)

    async def watch(self, ref: JobRef) -> AsyncGenerator[Observation, None]:
        """Yield the job's state after each change; see `Backend.watch`."""
        files = self._store.files(ref.namespace, ref.name)
        notices, seen = read_json(files.notices) or [], -1
        async with joined((Looking, self._config.root), lambda: Looking(self._store.settle)) as looking:
            with looking.following(files) as job:
                async for state in job.states():
                    if state.job is None or JobRef.of(state.job) != ref:
                        yield Observation(job=None)
                        return
                    for each in _unseen(files, state, seen):
                        yield Observation(job=with_status(state.job, each), pods=each.get("pods", ()), events=notices)
                    seen = state.number

    async def logs(
        self, ref: JobRef, replica: str, *, since: LogCursor | None = None, follow: bool = True
    ) -> AsyncGenerator[LogLine, None]:
        """Yield a replica's lines; see `Backend.logs`."""
        files = self._store.files(ref.namespace, ref.name)
        async for line in ReplicaLog(files, replica, job_uid=ref.uid).lines(since=since, follow=follow):
            yield line

    async def reasons(self, ref: JobRef) -> Sequence[Manifest]:  # noqa: ARG002 - the port's
        """Return nothing: the watch reports all reasons; see `Backend.reasons`."""
        return ()

    async def patch(self, ref: JobRef, change: Manifest) -> None:
        """Merge the change into the object; see `Backend.patch`."""
        await asyncio.to_thread(self._store.patch, ref, change)

    async def delete(self, ref: JobRef) -> None:
        """Stop and remove the job; see `Backend.delete`."""
        await asyncio.to_thread(self._store.delete, ref)

    async def pods_gone(self, ref: JobRef) -> bool:
        """Return whether nothing of the job runs; see `Backend.pods_gone`."""
        return await asyncio.to_thread(self._store.pods_gone, ref)

    async def inspect_outputs(
        self, ref: JobRef, outputs: ResolvedOutputs, *, since: datetime, curves: bool = False
    ) -> OutputReport:
        """Inspect the outputs in their claims' directories; see `Backend.inspect_outputs`."""
        return await asyncio.to_thread(self._inspect, ref, outputs, {"since": since.timestamp(), "curves": curves})

    async def usage(self, ref: JobRef) -> Mapping[str, Use]:
        """Return the usage reported by the job's supervisor, also after its end; see `Backend.usage`."""
        return await asyncio.to_thread(metering.told, self._store.files(ref.namespace, ref.name))

    def watch_claim(self, namespace: str, name: str) -> AsyncGenerator[Claim | None, None]:
        """Yield a local claim's annotations after each change; see `Backend.watch_claim` and `local.claim`."""
        return watched_claim(self._config.claims_of(namespace), name)

    def _inspect(self, ref: JobRef, outputs: ResolvedOutputs, wanted: Mapping[str, Any]) -> OutputReport:
        claims = self._config.claims_of(ref.namespace)
        declared = {"model": outputs.model, "tfevents": outputs.tfevents}
        try:
            places = {name: _place(claims, output) for name, output in declared.items() if output}
            request = {
                **{name: str(path) for name, (_, path) in places.items()},
                "roots": {name: str(root) for name, (root, _) in places.items()},
                **wanted,
            }
            return OutputReport.from_dict(probe.inspect(request))
        except (OSError, InvalidSpec) as error:
            raise OutputsNotVerified(f"{ref}: the outputs could not be looked at on this machine: {error}") from error


def _place(claims: Path, output: ResolvedOutput) -> tuple[Path, Path]:
    root = claim_directory(claims, output.claim)
    return root, inside(root, output.path, field=output.uri)


def _unseen(files: JobFiles, state: JobState, seen: int) -> list[dict[str, Any]]:
    """Return the states after the last yielded one; the newest if there was none, or only the object changed."""
    if seen < 0 or state.number == seen:
        return [state.state]
    return [each for number, each in files.snapshots.after(seen) if number <= state.number]
