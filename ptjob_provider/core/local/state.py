"""Read a job's state from its files, again only when they have changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptjob_provider.core.local.files import read_json, stamp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.local.files import JobFiles


def current_job(files: JobFiles) -> Manifest | None:
    """Return the job's object with its status; None if there is none."""
    job = read_json(files.object)
    return None if job is None else with_status(job, files.snapshots.latest()[1])


def with_status(job: Manifest, state: Mapping[str, Any]) -> Manifest:
    """Return the object with this state's status."""
    return {**job, "status": state.get("status", {})}


class JobState:
    """Last known object and state of one job, for a poller."""

    def __init__(self, files: JobFiles) -> None:
        self._files = files
        self._stamp = (-1, -1)
        self.job: Manifest | None = None
        self.number = -1
        self.state: dict[str, Any] = {}

    def refresh(self) -> bool:
        """Read the changes since the last call; return whether there were any."""
        job_changed = self._refresh_job()
        return self._refresh_state() or job_changed

    def _refresh_job(self) -> bool:
        found = stamp(self._files.object)
        if found == self._stamp:
            return False
        self._stamp, self.job = found, read_json(self._files.object)
        return True

    def _refresh_state(self) -> bool:
        if self._files.snapshots.newest() == self.number:
            return False
        self.number, self.state = self._files.snapshots.latest()
        return True
