"""Random histories of a job, its API server and its follower: what we judge is never deleted because of an old view.

A state machine changes the job on a stand-in API server, blinds and freezes the real follower with the real informer,
sets the clock and restarts the follower. Each deletion is compared with what the server has at that moment.
"""

from __future__ import annotations

import asyncio
import copy
import math
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from following import NOON, Following
from ptjob_provider.core import kinds
from ptjob_provider.core.diagnosis import Limits
from ptjob_provider.core.errors import ClusterUnavailable
from ptjob_provider.core.identity import MANAGED_LABEL
from ptjob_provider.core.run.outcome import Outcome
from ptjob_provider.core.status import JobPhase
from skipped_waits import SkippingLoop
from stand_in_watches import FORBIDDEN, StandInCluster, job, pod

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Manifest

MINUTE = 60.0
WAITS = {
    "no image": ("ImagePullBackOff", 0),
    "no Secret": ("CreateContainerConfigError", 0),
    "creating": ("ContainerCreating", 0),
    "crash loop": ("CrashLoopBackOff", 6),
}
BUSY = ClusterUnavailable("busy", code=503, retry_after=60.0)


def train_job(*conditions: str) -> Manifest:
    """Return a TrainJob of one node; Trainer writes no condition before its end."""
    found = job("digits", *({"Succeeded": "Complete"}.get(each, each) for each in conditions if each != "Running"))
    return {
        **found,
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": 1}},
    }


def node(phase: str = "Running", *, code: int = 0) -> Manifest:
    """Return the pod of that TrainJob."""
    found = pod("digits", phase, code=code)
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "digits",
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "jobset.sigs.k8s.io/job-index": "0",
        "batch.kubernetes.io/job-completion-index": "0",
        MANAGED_LABEL: "true",
    }
    meta = {key: value for key, value in found["metadata"].items() if key != "ownerReferences"}
    found["metadata"] = {**meta, "name": "digits-node-0-0-abcde", "labels": labels}
    found["spec"]["containers"] = [{"name": "node"}]
    for status in found["status"]["containerStatuses"]:
        status["name"] = "node"
    return found


class Histories(RuleBasedStateMachine):
    """Histories of a PyTorchJob of one replica."""

    plural: ClassVar[str] = "pytorchjobs"

    @staticmethod
    def job_with(*conditions: str) -> Manifest:
        return job("digits", *conditions)

    @staticmethod
    def pod_in(phase: str = "Running", *, code: int = 0) -> Manifest:
        return pod("digits", phase, code=code)

    @initialize(
        start_timeout=st.sampled_from([120.0, 1200.0]),
        deadline=st.sampled_from([None, 15.0, 50.0]),
        patience=st.sampled_from([900.0, 1e6]),
    )
    def begin(self, start_timeout: float, deadline: float | None, patience: float) -> None:
        self.patches = pytest.MonkeyPatch()
        self.server = StandInCluster()
        self.server.serve(self.patches)
        self.patches.setattr("ptjob_provider.core.kubernetes.informer.reflector._PAUSES", (0.2, 30.0))
        self.server.bookmarks = MINUTE
        self.server.on_delete = self.check_deletion
        self.wrong: list[str] = []
        self.step = timedelta(0)
        self.deadline = NOON + timedelta(minutes=deadline) if deadline else None
        self.options: dict[str, Any] = {
            "limits": Limits(start_timeout=start_timeout),
            "deadline": self.deadline,
            "api_error_timeout": patience,
        }
        self.runner = asyncio.Runner(loop_factory=SkippingLoop)
        self.server.put(self.plural, self.job_with("Created"))
        self.server.put("pods", self.waiting_pod("no image"))
        self.began: float | None = None
        self.overdue_at = math.inf
        self.following: Following | None = None
        self.follow()

    def follow(self) -> None:
        async def begin() -> None:
            self.following = Following(found=self.job_with("Created"), began=self.began, step=self.step, **self.options)
            self.began = self.following.began
            if self.deadline is not None:  # a clock that is set back later does not put it off
                left = (self.deadline - self.following.now()).total_seconds()
                self.overdue_at = asyncio.get_running_loop().time() + left
            await asyncio.sleep(1)

        self.runner.run(begin())

    # --- the server

    @property
    def found(self) -> Manifest | None:
        return self.server.found(self.plural, "digits")

    @property
    def phase(self) -> JobPhase | None:
        return kinds.read_status(self.found).phase if self.found else None

    def waiting_pod(self, name: str) -> Manifest:
        reason, restarts = WAITS[name]
        found = copy.deepcopy(self.pod_in())
        [status] = found["status"]["containerStatuses"]
        status |= {"state": {"waiting": {"reason": reason, "message": "m"}}, "restartCount": restarts}
        if restarts:
            status["lastState"] = self.pod_in("Failed", code=1)["status"]["containerStatuses"][0]["state"]
            found["spec"]["restartPolicy"] = "OnFailure"
        found["status"]["phase"] = "Pending"
        return found

    def goes_on(self) -> bool:
        return self.phase is not None and not self.phase.is_terminal

    @precondition(goes_on)
    @rule(name=st.sampled_from([*WAITS]))
    def pod_waits(self, name: str) -> None:
        self.server.put("pods", self.waiting_pod(name))

    @precondition(goes_on)
    @rule()
    def pod_trains(self) -> None:
        self.server.put("pods", self.pod_in())
        self.server.put(self.plural, self.job_with("Created", "Running"))

    @precondition(goes_on)
    @rule(condition=st.sampled_from(["Succeeded", "Succeeded", "Failed"]))
    def job_ends(self, condition: str) -> None:
        self.server.put("pods", self.pod_in(condition, code=condition == "Failed"))
        self.server.put(self.plural, self.job_with("Created", "Running", condition))

    @precondition(goes_on)
    @rule(number=st.integers(1, 5))
    def operator_writes_while_it_is_deleted(self, number: int) -> None:
        self.server.conflicts = number

    # --- blindness

    @rule(what=st.sampled_from(["pods", "jobs"]), how=st.sampled_from(["refused", "busy", "dead"]))
    def watch_fails(self, what: str, how: str) -> None:
        plural = self.plural if what == "jobs" else what
        if how == "dead":
            self.server.dead.add(plural)
        else:
            self.server.refused["watch", plural] = FORBIDDEN if how == "refused" else BUSY
            self.server.cut()

    @precondition(goes_on)
    @rule(name=st.sampled_from([*WAITS]), how=st.sampled_from(["refused", "busy", "dead"]))
    def pod_trains_unseen_just_before_its_limit(self, name: str, how: str) -> None:
        self.pod_waits(name)
        self.time_passes(100.0)
        self.watch_fails("pods", how)
        if self.goes_on():
            self.pod_trains()
        self.time_passes(40.0)

    @rule(verb=st.sampled_from(["get", "delete"]), error=st.sampled_from([FORBIDDEN, BUSY]))
    def requests_fail(self, verb: str, error: Any) -> None:
        self.server.refused[verb, self.plural] = error

    @rule()
    def server_recovers(self) -> None:
        self.server.refused.clear()
        self.server.dead.clear()
        self.server.cut()

    @rule(minutes=st.sampled_from([1, 30]))
    def follower_is_frozen(self, minutes: int) -> None:
        self.runner.get_loop()._skipping.now += minutes * MINUTE  # type: ignore[attr-defined]

    @rule(hours=st.sampled_from([-3, 3]))
    def clock_is_set(self, hours: int) -> None:
        self.step += timedelta(hours=hours)
        assert self.following is not None
        self.following.step = self.step

    @rule()
    def follower_restarts(self) -> None:
        self.stop_following()
        self.follow()

    @rule(seconds=st.sampled_from([5.0, 40.0, 130.0, 600.0, 1300.0]))
    def time_passes(self, seconds: float) -> None:
        self.runner.run(asyncio.sleep(seconds))

    # --- what holds

    def check_deletion(self, found: Manifest) -> None:
        """Compare a deletion with the server's state at this moment."""
        assert self.following is not None
        if self.runner.get_loop().time() >= self.overdue_at:
            if kinds.read_status(found).phase is JobPhase.SUCCEEDED:
                self.wrong.append("a job that had succeeded was deleted at the deadline")
            return
        [status] = self.server.found("pods", self.pod_in()["metadata"]["name"])["status"]["containerStatuses"]  # type: ignore[index]
        if kinds.read_status(found).phase is JobPhase.SUCCEEDED:
            self.wrong.append("a job that had succeeded was deleted")
        if "running" in status["state"]:
            self.wrong.append("a job whose containers all run was deleted")

    @invariant()
    def no_deletion_was_wrong(self) -> None:
        assert not getattr(self, "wrong", [])

    @invariant()
    def no_success_is_reported_as_a_failure(self) -> None:
        following: Following | None = getattr(self, "following", None)
        if following is None or not following.task.done() or following.task.cancelled() or following.task.exception():
            return
        outcome = following.task.result()
        if self.phase is JobPhase.SUCCEEDED and not outcome.is_open:
            assert outcome.outcome is Outcome.SUCCEEDED

    def stop_following(self) -> None:
        async def stop() -> None:
            assert self.following is not None
            self.following.task.cancel()
            await asyncio.gather(self.following.task, return_exceptions=True)

        self.runner.run(stop())

    def teardown(self) -> None:
        if not hasattr(self, "runner"):
            return
        try:
            self.server_recovers()
            self.runner.run(asyncio.sleep(40 * MINUTE))
            self.no_deletion_was_wrong()
            self.no_success_is_reported_as_a_failure()
            self.stop_following()
        finally:
            self.runner.close()
            self.patches.undo()


class TrainJobHistories(Histories):
    """Histories of a TrainJob of one node, whose pods do not name the TrainJob's uid."""

    plural: ClassVar[str] = "trainjobs"

    @staticmethod
    def job_with(*conditions: str) -> Manifest:
        return train_job(*(each for each in conditions if each != "Created"))

    @staticmethod
    def pod_in(phase: str = "Running", *, code: int = 0) -> Manifest:
        return node(phase, code=code)


BOUNDED = settings(max_examples=25, stateful_step_count=14, derandomize=True)

TestHistoriesOfAPyTorchJob = Histories.TestCase
TestHistoriesOfAPyTorchJob.settings = BOUNDED
TestHistoriesOfATrainJob = TrainJobHistories.TestCase
TestHistoriesOfATrainJob.settings = BOUNDED
