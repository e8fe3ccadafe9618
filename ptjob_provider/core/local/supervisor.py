"""Run one job in a process of its own, from its first replica's start to its last one's end.

The process survives the end of its parent and of the terminal, adopts orphaned processes of its job, and exits when the
job has ended and no process of it runs. `status` makes the decisions; this module has the loop and the I/O, all in one
thread.
"""

from __future__ import annotations

import json
import logging
import os
import select
import shutil
import signal
import sys
import time
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import PTJobError
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.kinds import PYTORCHJOB
from ptjob_provider.core.local import launch, processes, status
from ptjob_provider.core.local.config import Setup, gpu_ids
from ptjob_provider.core.local.devices import PortReservation, taken
from ptjob_provider.core.local.launch import PodPlan
from ptjob_provider.core.local.pod import LocalPod
from ptjob_provider.core.local.store import JobFiles, not_written, parsed, private, read, recovered, remove_job

if TYPE_CHECKING:
    from io import TextIOWrapper

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.local.pod import LocalContainer

logger = logging.getLogger(__name__)

INTERVAL = 0.1
"""Seconds between checks of the job's object, deadlines and devices; output and process exits are noticed at once."""

LONGEST_GRACE = 3
"""Maximum of `terminationGracePeriodSeconds`, whatever the pod requests, so that a stop takes at most five seconds."""


class Supervisor:
    """Supervisor of one job, from its submission until no process of it runs."""

    def __init__(self, files: JobFiles, setup: Setup) -> None:
        self._files = files
        self._job: Manifest = {}
        self._text = b""
        self._published: dict[str, Any] = {}
        self._wake, signals = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(signals, warn_on_full_buffer=False)
        self._stopped_by: signal.Signals | None = None
        self._read_object()
        self.ref = JobRef.of(self._job)
        self._port = PortReservation()
        self._device_file = Path(setup.devices)
        self._devices: TextIOWrapper | None = None
        replicas = PYTORCHJOB.replicas(self._job)
        gpus = iter(gpu_ids(setup.environment, sum(replica.gpus for replica in replicas)))
        self._status = status.initial_status(self._job, datetime.now(UTC))
        self._plans = [
            PodPlan(
                job=self._job,
                replica=replica,
                port=self._port.port,
                setup=setup,
                directory=files.path / "run" / replica.name,
                devices=tuple(islice(gpus, replica.gpus if setup.devices else 0)),
            )
            for replica in replicas
        ]
        self._pods: list[LocalPod] = []

    def run(self) -> None:
        """Run the job to its end."""
        while not self._is_over():
            if self._stopped_by:
                raise PTJobError(f"the process that supervised the job got signal {self._stopped_by.name}")
            self._read_object()
            self._collect()
            if self._is_deleted or status.is_finished(self._status):
                for pod in self._pods:
                    pod.stop(LONGEST_GRACE)
            elif not self._pods:
                self._create_pods()
            for pod in self._pods:
                pod.advance()
            self._status = status.next_status(self._job, self._status, self._wire(), datetime.now(UTC))
            self._publish({"status": self._status, "pods": self._wire()})
            self._wait()
        processes.kill_all(processes.descendants)
        self._clean()
        if self._is_deleted:
            remove_job(self._files)

    def stop(self, signum: int, _frame: object) -> None:
        """End the job because this process received a stop signal."""
        self._stopped_by = signal.Signals(signum)

    def fail(self, message: str) -> None:
        """Stop everything and record that the supervisor could not continue."""
        processes.kill_all(processes.descendants)
        for container in self._containers():
            container.notice_exit()
        self._clean()
        self._publish(recovered({"status": self._status, "pods": self._wire()}, datetime.now(UTC), message))

    @property
    def _is_deleted(self) -> bool:
        return bool(self._job["metadata"].get("deletionTimestamp"))

    def _is_over(self) -> bool:
        has_ended = self._is_deleted or status.is_finished(self._published.get("status", {}))
        return has_ended and all(pod.is_over for pod in self._pods) and self._wire() == self._published.get("pods")

    def _read_object(self) -> None:
        text = read(self._files.object)
        if text != self._text:
            self._text, self._job = text, parsed(text)

    def _collect(self) -> None:
        for container in self._containers():
            container.notice_exit()  # before anything slow: these times show which container failed first
        for container in self._containers():
            container.close_if_exited()

    def _create_pods(self) -> None:
        """Create all pods. If they have devices, they are pending until no other job has this machine's."""
        if any(plan.devices for plan in self._plans):
            self._devices = taken(self._device_file)
            if self._devices is None:
                return
        self._pods = [LocalPod(plan, log=self._files.log) for plan in self._plans]
        for pod in self._pods:
            pod.create()

    def _wait(self) -> None:
        """Copy output until a signal arrives, such as a process's exit, or the next check is due."""
        until = time.monotonic() + INTERVAL
        while (left := until - time.monotonic()) > 0:
            open_outputs = {c.output: c for c in self._containers() if c.output is not None}
            poll = select.poll()
            for descriptor in (self._wake, *open_outputs):
                poll.register(descriptor, select.POLLIN)
            ready = {descriptor for descriptor, _ in poll.poll(left * 1000)}
            for descriptor in ready & open_outputs.keys():
                open_outputs[descriptor].read()
            if self._wake in ready:
                os.read(self._wake, 4096)
                return

    def _containers(self) -> list[LocalContainer]:
        return [container for pod in self._pods for container in pod.containers]

    def _wire(self) -> list[Manifest]:
        if self._pods:
            return [pod.wire() for pod in self._pods]
        why = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu. Another job has this machine's devices."
        waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}
        phase = "Failed" if self._is_deleted or status.is_finished(self._status) else "Pending"
        return [{**plan.pod, "status": {"phase": phase, "conditions": [waits]}} for plan in self._plans]

    def _publish(self, state: dict[str, Any]) -> None:
        if state != self._published:
            self._files.write(self._files.state, state)
            self._published = state

    def _clean(self) -> None:
        """Delete the pods' directories on disk and in memory, and the reserve; logs and claims stay."""
        for directory in (self._files.path / "run", launch.memory_of(self.ref.uid)):
            shutil.rmtree(directory, ignore_errors=True)
        self._files.reserve.unlink(missing_ok=True)


def main(path: str) -> int:
    """Read the setup from stdin, detach from the parent, and run the job."""
    files = JobFiles(Path(path))
    setup = Setup.from_dict(json.load(sys.stdin))
    if os.fork():
        os._exit(0)  # the submitter does not wait for the child, which outlives it
    files.supervisor_lock.write_text(str(os.getpid()))
    _detach(files.supervisor_log)  # ends the submitter's wait, so it comes after the pid is written
    processes.become_subreaper()
    supervisor = Supervisor(files, setup)
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, supervisor.stop)
    try:
        supervisor.run()
    except PTJobError as error:
        supervisor.fail(str(error))
    except OSError as error:
        logger.exception("a file could not be written")
        supervisor.fail(f"what it had started was ended: {not_written(files.path, error)}")
    except Exception as error:
        logger.exception("the supervisor gave up")
        supervisor.fail(f"the process that supervised it gave up: {type(error).__name__}; its supervisor.log says more")
    else:
        return 0
    return 1


def _detach(log: Path) -> None:
    for signum in (signal.SIGHUP, signal.SIGCHLD):
        signal.signal(signum, lambda *_: None)  # not SIG_IGN, which the job's processes would inherit
    with Path(os.devnull).open("r+b") as null, open(log, "ab", opener=private) as out:
        for source, target in ((null, 0), (out, 1), (out, 2)):
            os.dup2(source.fileno(), target)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
