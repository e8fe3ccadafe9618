"""Run one job in a process of its own: operator, scheduler and kubelet in one loop.

The process survives the end of its parent and of the terminal, adopts orphaned processes of its job, and exits when no
process of the job runs or will run. `operator` makes the decisions; this module has the loop and the I/O, all in one
thread.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import PTJobError
from ptjob_provider.core.kinds.pod_template import count_gpus
from ptjob_provider.core.local import operator, processes
from ptjob_provider.core.local.config import Setup
from ptjob_provider.core.local.devices import DevicePool, PortReservation
from ptjob_provider.core.local.launch import Place
from ptjob_provider.core.local.operator import Status, defaulted, is_finished, with_condition
from ptjob_provider.core.local.pod import Pod
from ptjob_provider.core.local.processes import UsageSampler
from ptjob_provider.core.local.store import SUPERVISOR_LOST, JobFiles, parsed, private, read, remove_job

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.local.pod import Container

logger = logging.getLogger(__name__)

INTERVAL = 0.1
"""Seconds between checks of the job's object, deadlines and devices; output and process exits are noticed at once."""

LONGEST_GRACE = 3
"""Maximum of `terminationGracePeriodSeconds`, whatever the pod requests, so that a stop takes at most five seconds."""


class Supervisor:
    """Supervisor of one job, from its submission until no process of it runs."""

    def __init__(self, files: JobFiles, setup: Setup) -> None:
        self._files = files
        self._setup = setup
        self._job: Manifest = {}
        self._text = b""
        self._port = PortReservation()
        self._pool = DevicePool(Path(setup.devices), setup.gpus if isinstance(setup.gpus, int) else 0)
        self._pods: dict[str, Pod] = {}
        self._incarnations = 0
        self._published: dict[str, Any] = {}
        self._wake, signals = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(signals, warn_on_full_buffer=False)
        self._stopped_by = 0
        self._read_object()
        self._sampler = UsageSampler(self._job["metadata"]["uid"], files)
        self._status: Status = operator.created(self._job, datetime.now(UTC))

    def run(self) -> None:
        """Run the job to its end."""
        while True:
            if self._stopped_by:
                signum = signal.Signals(self._stopped_by).name
                raise PTJobError(f"the process that supervised the job got signal {signum}")
            self._read_object()
            self._collect()
            self._decide()
            self._publish()
            self._place()
            started = sum(pod.advance() for pod in self._pods.values())
            if self._is_over():
                break
            running = [pod for pod in self._pods.values() if any(container.pid for container in pod.containers)]
            self._sampler.sample((pod.name, pod.uid) for pod in running)
            if not started:  # publish a new run before it can end
                self._wait()
        processes.kill_all(processes.descendants)
        self._forget_pods()
        if self._is_deleted:
            remove_job(self._files)

    def stop(self, signum: int, _frame: object) -> None:
        """End the job because this process received a stop signal."""
        self._stopped_by = signum

    def fail(self, message: str) -> None:
        """Stop everything and record that the supervisor could not continue."""
        processes.kill_all(processes.descendants)
        self._collect()
        if not is_finished(self._status):
            now = datetime.now(UTC)
            self._status = with_condition(self._status, "Failed", message, now=now, reason=SUPERVISOR_LOST)
        self._publish()
        self._forget_pods()

    @property
    def _is_deleted(self) -> bool:
        return bool(self._job["metadata"].get("deletionTimestamp"))

    def _read_object(self) -> None:
        text = read(self._files.object)
        if text != self._text:
            self._text, self._job = text, defaulted(parsed(text))

    def _collect(self) -> None:
        for container in self._containers():
            container.notice_exit()  # before anything slow: these times show which container failed first
        for container in self._containers():
            container.close_if_exited()

    def _decide(self) -> None:
        self._drop_gone()
        if self._is_deleted:
            for pod in self._pods.values():
                pod.remove(LONGEST_GRACE)
            return
        outcome = operator.reconcile(
            self._job, self._status, [pod.wire() for pod in self._pods.values()], datetime.now(UTC)
        )
        self._status = outcome.status
        for name in outcome.delete:
            self._pods[name].remove(LONGEST_GRACE)
        for role, index in outcome.create:
            self._incarnations += 1
            place = Place(role=role, index=index, port=self._port.port)
            pod = Pod(self._job, place, setup=self._setup, files=self._files, incarnation=self._incarnations)
            self._pods[pod.name] = pod

    def _drop_gone(self) -> None:
        for pod in [pod for pod in self._pods.values() if pod.is_over]:
            self._pool.release(pod.devices)
            pod.devices = ()
            if pod.is_going and pod.wire() in self._published.get("pods", ()):
                pod.forget()
                del self._pods[pod.name]

    def _place(self) -> None:
        waiting = [pod for pod in self._pods.values() if not pod.is_placed and not pod.is_going]
        has_devices = isinstance(self._setup.gpus, int)
        requested = [count_gpus(pod.object) if has_devices else 0 for pod in waiting]
        devices = self._pool.acquire(sum(requested))
        for pod, count in zip(waiting, requested, strict=True):
            if devices is None:
                why = f"1 Insufficient nvidia.com/gpu. {sum(requested)} requested, fewer free here."
                pod.problem = f"0/1 nodes are available: {why}"
            else:
                assigned, devices = devices[:count], devices[count:]
                pod.place(assigned)

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

    def _containers(self) -> list[Container]:
        return [container for pod in self._pods.values() for container in pod.containers]

    def _publish(self) -> None:
        state = {"status": self._status, "pods": [pod.wire() for pod in self._pods.values()]}
        if state != self._published:
            self._files.states.append(state)
            self._published = state

    def _forget_pods(self) -> None:
        for pod in self._pods.values():
            pod.forget()

    def _is_over(self) -> bool:
        if self._is_deleted:
            return not self._pods
        settled = all(pod.is_over and not pod.is_going for pod in self._pods.values())
        return is_finished(self._status) and settled and self._status == self._published["status"]


def main(path: str) -> int:
    """Read the setup from stdin, detach from the parent, and run the job."""
    files = JobFiles(Path(path))
    setup = Setup.from_dict(json.load(sys.stdin))
    if os.fork():
        os._exit(0)  # the submitter does not wait for the child, which outlives it
    files.supervisor_lock.write_text(str(os.getpid()))
    _detach(files.supervisor_log)  # ends the submitter's wait, so it comes after the pid is written
    processes.adopt_orphans()
    supervisor = Supervisor(files, setup)
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, supervisor.stop)
    try:
        supervisor.run()
    except Exception as error:
        logger.exception("the supervisor gave up")
        why = f"the process that supervised the job gave up: {type(error).__name__}; its supervisor.log says more"
        supervisor.fail(str(error) if isinstance(error, PTJobError) else why)
        return 1
    return 0


def _detach(log: Path) -> None:
    for signum in (signal.SIGHUP, signal.SIGCHLD):
        signal.signal(signum, lambda *_: None)  # not SIG_IGN, which the job's processes would inherit
    with Path(os.devnull).open("r+b") as null, open(log, "ab", opener=private) as out:
        for source, target in ((null, 0), (out, 1), (out, 2)):
            os.dup2(source.fileno(), target)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
