"""Implement the back-end port on this machine: submit jobs, and poll the state that supervisors write.

A job's directory is prepared under a temporary name and then renamed: it is complete as soon as it exists, and a second
job of the same name is refused. Its lock is taken before the rename; the supervisor inherits it from the submitter.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import site
import subprocess
import sys
import time
import uuid
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import ptjob_provider
from ptjob_provider.core import kinds
from ptjob_provider.core.backend import Observation, View
from ptjob_provider.core.code.folder import MAX_PACKED, megabytes, too_large
from ptjob_provider.core.errors import (
    ClusterUnavailable,
    InvalidSpec,
    JobAlreadyExists,
    KindNotServed,
    OutputsNotVerified,
    UnsupportedByBackend,
)
from ptjob_provider.core.identity import JobRef, Manifest
from ptjob_provider.core.in_pod import find_checkpoint, probe_outputs, unpack_code
from ptjob_provider.core.kinds.pytorchjob import API_VERSION, KIND, validate
from ptjob_provider.core.local.admission import NO_SUSPEND, admit
from ptjob_provider.core.local.launch import claim_directory, inside
from ptjob_provider.core.local.logs import LocalLog
from ptjob_provider.core.local.status import instant
from ptjob_provider.core.local.store import (
    JobFiles,
    JobStore,
    current,
    locked,
    make_private,
    not_written,
    read_json,
    remove_job,
    write_json,
)
from ptjob_provider.core.outputs.checkpoints import Checkpoint
from ptjob_provider.core.outputs.contract import OutputReport, ResolvedOutputs

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence

    from ptjob_provider.core.backend import Claim
    from ptjob_provider.core.history.peak_usage import PeakUsage
    from ptjob_provider.core.local.config import LocalConfig, Setup
    from ptjob_provider.core.logs import LogCursor, LogLine
    from ptjob_provider.core.outputs.contract import ResolvedOutput

_POLL_INTERVAL = 0.2
"""Seconds between polls."""

_START_TIMEOUT = 120.0
_LOOK_TIMEOUT = 300.0


def admitted(manifest: Mapping[str, Any]) -> Manifest:
    """Return the job as it is stored: validated, with a namespace, a uid and a creation time.

    Raises:
        KindNotServed: the job's kind is supported on clusters only.
        InvalidSpec: the job is invalid, or its kind is unknown.
    """
    version, kind = manifest.get("apiVersion"), kinds.named(str(manifest.get("kind"))).KIND
    if (version, kind) != (API_VERSION, KIND):
        text = f"'{version} {kind}' is not allowed; this machine runs {API_VERSION} {KIND}"
        raise KindNotServed(f"kind: {text}")
    validate(manifest)
    given = {key: value for key, value in manifest["metadata"].items() if key != "deletionTimestamp"}
    meta = {
        **given,
        "namespace": given.get("namespace") or "default",
        "uid": str(uuid.uuid4()),
        "creationTimestamp": instant(datetime.now(UTC)),
    }
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": meta, "spec": manifest["spec"]}


@contextmanager
def created(files: JobFiles, job: Manifest, notices: Sequence[Manifest]) -> Iterator[int]:
    """Create the job's directory and yield the descriptor of its lock; the process that holds it manages the job.

    Raises:
        JobAlreadyExists: the name is taken.
        ClusterUnavailable: the directory cannot be created.
    """
    draft = JobFiles(files.path.with_name(f".{files.path.name}.{job['metadata']['uid']}"))
    ref, lock = JobRef.of(job), -1
    try:
        try:
            make_private(draft.path)
            lock = os.open(draft.supervisor_lock, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            draft.object_lock.touch(mode=0o600)
            draft.keep_reserve()
            write_json(draft.notices, notices)
            write_json(draft.object, job)
        except OSError as error:
            raise ClusterUnavailable(f"{ref}: {not_written(files.path, error)}") from error
        _take_name(draft.path, files, ref)
        yield lock
    finally:
        if lock >= 0:
            os.close(lock)
        shutil.rmtree(draft.path, ignore_errors=True)


def _take_name(draft: Path, files: JobFiles, ref: JobRef) -> None:
    try:
        draft.rename(files.path)  # fails if a non-empty directory has the name
    except OSError as error:
        with suppress(OSError), locked(files.object_lock):
            if read_json(files.object) is None and not files.is_supervised:  # lost in a power failure
                remove_job(files)
                draft.rename(files.path)
                return
        if not files.path.exists():
            raise ClusterUnavailable(f"{ref}: {files.path} could not be made: {error}") from error
        text = f"{ref}: a job of this name exists on this machine; delete it or choose another name"
        raise JobAlreadyExists(text, code=409, reason="AlreadyExists") from error


def _start_supervisor(files: JobFiles, setup: Setup, lock: int) -> None:
    root = str(Path(ptjob_provider.__file__).parents[1])
    path = {} if root in site.getsitepackages() else {"PYTHONPATH": root}
    command = [sys.executable, "-P", "-m", "ptjob_provider.core.local.supervisor", str(files.path)]
    subprocess.run(  # noqa: S603 - our own module
        command,
        input=json.dumps(asdict(setup)).encode(),
        env={**setup.environment, **path},
        cwd="/",
        pass_fds=(lock,),
        start_new_session=True,
        capture_output=True,
        timeout=_START_TIMEOUT,
        check=True,
    )


class LocalBackend:
    """Runs jobs as processes of this machine; implements `backend.Backend`.

    Any number of processes may use one root at once. The documentation lists the differences from a cluster.
    """

    def __init__(self, config: LocalConfig) -> None:
        if sys.platform != "linux":
            raise UnsupportedByBackend.of(config.title("backend"), "jobs run on this machine only if it is a Linux")
        self._store = JobStore(config.root)
        self._config = config

    async def submit(
        self, manifest: Manifest, *, secret: Manifest | None = None, archive: IO[bytes] | None = None
    ) -> JobRef:
        """Create the job and start its supervisor. See `Backend.submit`."""
        if archive is not None and unpack_code.ARCHIVE not in (secret or {}).get("stringData", ()):
            raise too_large(archive, allowed=f"{megabytes(MAX_PACKED)} on this machine")
        return await asyncio.to_thread(self._submit, manifest, secret)

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
        last = None
        while (seen := await self.read(ref)).job is not None:
            if seen != last:
                yield (last := seen)
            await asyncio.sleep(_POLL_INTERVAL)
        yield seen

    def view(self, ref: JobRef) -> View:  # noqa: ARG002 - the port's
        """Return that the files are always current; see `Backend.view`."""
        return View(live=time.monotonic(), age=0.0)

    async def read(self, ref: JobRef) -> Observation:
        """Return the job as its supervisor has written it last; see `Backend.read`."""
        return await asyncio.to_thread(self._read, ref)

    async def logs(
        self, ref: JobRef, replica: str, *, since: LogCursor | None = None, follow: bool = True
    ) -> AsyncGenerator[LogLine, None]:
        """Yield a replica's lines; see `Backend.logs`."""
        files = self._store.files(ref.namespace, ref.name)
        async for line in LocalLog(files, replica, job_uid=ref.uid).lines(since=since, follow=follow):
            yield line

    async def reasons(self, ref: JobRef) -> Sequence[Manifest]:  # noqa: ARG002 - the port's
        """Return nothing: `watch` already yields all events; see `Backend.reasons`."""
        return ()

    async def patch(self, ref: JobRef, change: Manifest) -> None:
        """Merge the change into the object; see `Backend.patch`.

        Raises:
            UnsupportedByBackend: the change suspends or resumes the job.
        """
        if "suspend" in ((change.get("spec") or {}).get("runPolicy") or ()):
            raise UnsupportedByBackend.of("spec.runPolicy.suspend", NO_SUSPEND)
        await asyncio.to_thread(self._store.patch, ref, change)

    async def delete(self, ref: JobRef, *, version: str | None = None) -> None:
        """Stop and remove the job; see `Backend.delete`."""
        await asyncio.to_thread(self._store.delete, ref, version=version)

    async def pods_gone(self, ref: JobRef) -> bool:
        """Return whether nothing of the job runs; see `Backend.pods_gone`."""
        return await asyncio.to_thread(self._store.pods_gone, ref)

    async def inspect_outputs(
        self, ref: JobRef, outputs: ResolvedOutputs, *, since: datetime, curves: bool = False
    ) -> OutputReport:
        """Inspect the outputs in their claims' directories; see `Backend.inspect_outputs`."""
        return await asyncio.to_thread(self._inspect, ref, outputs, since, curves=curves)

    async def find_checkpoint(self, job: Manifest, folder: ResolvedOutput, *, since: datetime) -> Checkpoint:
        """Look for a checkpoint in the claim's directory; see `Backend.find_checkpoint`."""
        claims = self._config.claims_of(job["metadata"]["namespace"])
        return await asyncio.to_thread(_find_checkpoint, claims, folder, since)

    async def usage(self, ref: JobRef) -> Mapping[str, PeakUsage]:  # noqa: ARG002 - the port's
        """Return nothing: this machine's own `top` shows what its processes use. See `Backend.usage`."""
        return {}

    def watch_claim(self, namespace: str, name: str) -> AsyncGenerator[Claim | None, None]:
        """Refuse: a directory has no annotations; see `Backend.watch_claim`.

        Raises:
            UnsupportedByBackend: always.
        """
        folder = self._config.claims_of(namespace) / name
        raise UnsupportedByBackend.of("ClaimArrivalTrigger", f"on this machine use DataArrivalTrigger({str(folder)!r})")

    def _submit(self, manifest: Manifest, secret: Manifest | None) -> JobRef:
        """Create the job and start its supervisor. The Secret is never written to disk."""
        job, config = admitted(manifest), self._config
        if secret is not None:
            config = replace(config, secrets={**config.secrets, secret["metadata"]["name"]: secret["stringData"]})
        setup, notices = admit(job, config)
        ref = JobRef.of(job)
        files = self._store.files(ref.namespace, ref.name)
        current(files)
        places = _places(config.claims_of(ref.namespace), ResolvedOutputs.of(job))
        with created(files, job, notices) as lock:
            try:
                files.write(files.outputs_before, probe_outputs.listing(places))
                _start_supervisor(files, setup, lock)
            except (OSError, subprocess.SubprocessError) as error:
                shutil.rmtree(files.path, ignore_errors=True)
                raise ClusterUnavailable(f"{ref}: it could not be started: {error}") from error
        return ref

    def _read(self, ref: JobRef) -> Observation:
        files = self._store.files(ref.namespace, ref.name)
        version = files.version  # before the state, which may become newer than the version, not older
        job, state = current(files)
        if job is None or JobRef.of(job) != ref:
            return Observation(job=None)
        meta = {**job["metadata"], "resourceVersion": version}
        job = {**job, "metadata": meta, "status": state.get("status", {})}
        return Observation(job=job, pods=state.get("pods", ()), events=read_json(files.notices) or ())

    def _inspect(self, ref: JobRef, outputs: ResolvedOutputs, since: datetime, *, curves: bool) -> OutputReport:
        files = self._store.files(ref.namespace, ref.name)
        try:
            meta = (read_json(files.object) or {}).get("metadata") or {}
            is_there = meta.get("uid") == ref.uid  # its time to live may be over, and another job have its name
            started = datetime.fromisoformat(meta["creationTimestamp"]) if is_there else since
            before = read_json(files.outputs_before) if is_there else None
            if before and since < started:
                before = {name: _older_than(since, marks) for name, marks in before.items()}
            times = {"since": since.timestamp(), "started": started.timestamp(), "before": before, "curves": curves}
            request = _places(self._config.claims_of(ref.namespace), outputs) | times
            return OutputReport.from_dict(probe_outputs.inspect(request))
        except (OSError, InvalidSpec) as error:
            raise OutputsNotVerified(f"{ref}: the outputs could not be looked at on this machine: {error}") from error


def _find_checkpoint(claims: Path, folder: ResolvedOutput, since: datetime) -> Checkpoint:
    try:
        root = claim_directory(claims, folder.claim)
        make_private(root)  # as on its first use
        path = inside(root, folder.path, field=folder.uri)
        request = {"path": str(path), "root": str(root), "since": since.timestamp(), "seconds": _LOOK_TIMEOUT}
        return Checkpoint.from_dict(find_checkpoint.find(request))
    except (OSError, ValueError) as error:
        raise OutputsNotVerified(f"{folder.uri} could not be looked at on this machine: {error}") from error


def _places(claims: Path, outputs: ResolvedOutputs) -> dict[str, Any]:
    """Return the paths of the outputs and of their claims, as `probe_outputs` takes them.

    Raises:
        InvalidSpec: a path leaves its claim.
    """
    roots = {name: claim_directory(claims, output.claim) for name, output in outputs.verified.items()}
    paths = {name: str(inside(roots[name], each.path, field=each.uri)) for name, each in outputs.verified.items()}
    return {**paths, "roots": {name: str(root) for name, root in roots.items()}}


def _older_than(since: datetime, marks: Mapping[str, Sequence[int]]) -> dict[str, Sequence[int]]:
    """Return the listed files without those that an earlier attempt of the same task has written."""
    return {name: mark for name, mark in marks.items() if mark[0] < since.timestamp() * 1e9}
