"""Submit a job to this machine: validate it, create it atomically, start its supervisor.

The job's directory is created elsewhere and renamed into place, so that it exists completely or not at all, and a
second submitter finds the name taken. Its lock is held from before that moment: first by us, then by the supervisor
that inherits it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import site
import subprocess
import sys
import uuid
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ptjob_provider
from ptjob_provider.core.errors import ClusterUnavailable, InvalidSpec, JobAlreadyExists
from ptjob_provider.core.identity import JobRef, Manifest
from ptjob_provider.core.kinds.pytorchjob import API_VERSION, KIND, validate
from ptjob_provider.core.local.conditions import instant
from ptjob_provider.core.local.files import JobFiles, make_private, write_json
from ptjob_provider.core.local.plan import plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ptjob_provider.core.local.config import LocalConfig
    from ptjob_provider.core.local.objects import JobStore
    from ptjob_provider.core.local.setup import Setup

_START_TIMEOUT = 30.0
_SET_BY_SERVER = frozenset(
    {"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"}
    | {"managedFields", "selfLink", "finalizers", "ownerReferences"}
)


def submit(
    manifest: Mapping[str, Any], config: LocalConfig, store: JobStore, *, secret: Mapping[str, Any] | None = None
) -> JobRef:
    """Create the job and start its supervisor; see `Backend.submit`. The Secret is never written to a disk."""
    job = admitted(manifest)
    if secret is not None:
        config = replace(config, secrets={**config.secrets, secret["metadata"]["name"]: secret["stringData"]})
    setup, notices = plan(job, config)
    files = store.files(job["metadata"]["namespace"], job["metadata"]["name"])
    store.sweep()
    store.settle(files)
    with created(files, job, notices) as lock:
        try:
            _start_supervisor(files, setup, lock)
        except (OSError, subprocess.SubprocessError) as error:
            shutil.rmtree(files.path, ignore_errors=True)
            raise ClusterUnavailable(f"{JobRef.of(job)}: its supervisor could not be started: {error}") from error
    return JobRef.of(job)


def admitted(manifest: Mapping[str, Any]) -> Manifest:
    """Return the job as it is stored: validated, of the one supported kind, with a uid.

    Raises:
        InvalidSpec: it is invalid.
    """
    if (manifest.get("apiVersion"), manifest.get("kind")) != (API_VERSION, KIND):
        what = f"{manifest.get('apiVersion')} {manifest.get('kind')}"
        raise InvalidSpec.of("kind", what, f"this machine runs {API_VERSION} {KIND}")
    validate(manifest)
    given = {key: value for key, value in manifest["metadata"].items() if key not in _SET_BY_SERVER}
    if not given.get("name"):
        raise InvalidSpec.of("metadata.name", given.get("name"), "allowed: a name; none is made up here")
    meta = {
        **given,
        "namespace": given.get("namespace") or "default",
        "uid": str(uuid.uuid4()),
        "creationTimestamp": instant(datetime.now(UTC)),
    }
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": meta, "spec": manifest["spec"]}


@contextmanager
def created(files: JobFiles, job: Manifest, notices: Sequence[Manifest]) -> Iterator[int]:
    """Create the job's directory and yield the descriptor of its lock; its holder is responsible for the job.

    Raises:
        JobAlreadyExists: the name is taken.
        ClusterUnavailable: the directory cannot be created.
    """
    draft = JobFiles(files.path.with_name(f".{files.path.name}.{job['metadata']['uid']}"))
    make_private(draft.path)
    lock = os.open(draft.supervisor_lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        draft.object_lock.touch(mode=0o600)
        write_json(draft.notices, notices)
        write_json(draft.object, job, durable=True)
        _take_name(draft.path, files.path, JobRef.of(job))
        yield lock
    finally:
        os.close(lock)
        shutil.rmtree(draft.path, ignore_errors=True)


def _take_name(draft: Path, place: Path, ref: JobRef) -> None:
    try:
        draft.rename(place)  # fails if a non-empty directory has the name
    except OSError as error:
        if not place.exists():
            raise ClusterUnavailable(f"{ref}: {place} could not be made: {error}") from error
        text = f"{ref}: a job of this name exists on this machine; delete it or choose another name"
        raise JobAlreadyExists(text, code=409, reason="AlreadyExists") from error


def _start_supervisor(files: JobFiles, setup: Setup, lock: int) -> None:
    command = [sys.executable, "-P", "-m", "ptjob_provider.core.local.supervisor", str(files.path)]
    subprocess.run(  # noqa: S603 - our own module
        command,
        input=json.dumps(setup.to_dict()).encode(),
        env={**setup.environment, **_import_path()},
        cwd="/",
        pass_fds=(lock,),
        start_new_session=True,
        capture_output=True,
        timeout=_START_TIMEOUT,
        check=True,
    )


def _import_path() -> dict[str, str]:
    root = str(Path(ptjob_provider.__file__).parents[1])
    return {} if root in site.getsitepackages() else {"PYTHONPATH": root}
