from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from pods import BACK_OFF, CREATING, NOW, POD, RUNNING, after, container, ended, event, look, pod, stamp
from ptjob_provider.core.diagnosis import outlook, waiting_reason
from ptjob_provider.core.history import PodHistory, WaitKind
from ptjob_provider.core.status import JobPhase, JobStatus
from rows import each_row

if TYPE_CHECKING:
    from datetime import datetime


class TestHeldUp:
    MASTER: ClassVar[dict[str, Any]] = {
        "metadata": {"name": "digits-master-0", "uid": "m"},
        "status": {"phase": "Pending", "containerStatuses": [container({"waiting": {"reason": "ErrImagePull"}})]},
    }

    def worker(self, state: dict[str, Any]) -> dict[str, Any]:
        found = pod(container(CREATING), phase="Pending")
        found["status"]["initContainerStatuses"] = [container(state, name="init-pytorch")]
        return found

    def test_a_crash_loop_delays_no_other_replica(self) -> None:
        """Its pod has started, so nothing waits for it."""
        looping = {**self.MASTER, "status": {"phase": "Running", "containerStatuses": [container(BACK_OFF, 3)]}}
        record = look(PodHistory(), looping, self.worker(RUNNING))

        record = look(record, looping, self.worker(ended(1)), at=200)

        assert record.held_up == ()


def starting(state: dict[str, Any] = CREATING, **more: Any) -> dict[str, Any]:
    return pod(container(state), phase="Pending", **more)


QUEUED: dict[str, Any] = {"metadata": {"name": POD, "uid": "u1"}, "status": {"phase": "Pending"}}


class TestWaiting:
    @each_row(
        ("first", "second", "kind", "since"),
        [
            (starting(), starting(), WaitKind.STARTING, 3),
            # An image that cannot be pulled belongs to the same start.
            (starting(), starting({"waiting": {"reason": "ErrImagePull"}}), WaitKind.STUCK, 3),
            # Time in a queue does not count towards the start timeout.
            (QUEUED, starting(), WaitKind.STARTING, 60),
            (starting(), starting(uid="u2"), WaitKind.STARTING, 60),
        ],
    )
    def test_a_wait_is_measured_from_the_first_sight_of_its_kind_and_pod(
        self, first: dict[str, Any], second: dict[str, Any], kind: WaitKind, since: int
    ) -> None:
        """By the local clock."""
        record = look(look(PodHistory(), first, at=3), second, at=60)

        assert [(one.kind, one.since) for one in record.waiting] == [(kind, after(since))]

    @each_row(
        "events",
        [
            [
                event("FailedMount", "old", seconds=1),
                event("Pulling", "newest", series={"lastObservedTime": stamp(9)}),
                event("FailedAttachVolume", "middle", lastTimestamp=None, eventTime=stamp(5)),
                event("FailedMount", "other", seconds=20, name="digits-worker-1"),
                event("Unheard", "of", seconds=30),
            ],
            [
                event("FailedMount", "newest", lastTimestamp="2026-11-20T10:00:00.850Z"),  # as a text before `00Z`
                event("Pulling", "old", lastTimestamp="2026-11-20T10:00:00Z"),
            ],
        ],
    )
    def test_the_newest_event_of_this_pod_counts(self, events: list[dict[str, Any]]) -> None:
        """Old servers fill lastTimestamp, new ones series or eventTime; other pods' events do not count."""
        record = look(PodHistory(), starting(), events=events)

        assert [one.message for one in record.waiting] == ["newest"]

    @each_row(
        ("phases", "meta", "replicas", "is_over"),
        [
            (["Failed"], {}, 1, True),
            (["Succeeded", "Failed"], {}, 2, True),
            (["Failed", "Running"], {}, 2, False),
            (["Failed"], {}, 2, False),
            (["Failed"], {"deletionTimestamp": stamp(9)}, 1, False),
            ([], {}, 1, False),
        ],
    )
    def test_a_job_waits_for_its_controller_when_all_its_pods_have_ended(
        self, phases: list[str], meta: dict[str, Any], replicas: int, *, is_over: bool
    ) -> None:
        """A missing pod is made again, and so is one that is being deleted."""
        states = {"Running": RUNNING, "Failed": ended(1), "Succeeded": ended(0)}
        pods = [pod(container(states[phase]), phase=phase, uid=phase, name=phase, **meta) for phase in phases]

        record = look(PodHistory(), *pods, replicas=replicas)

        assert (WaitKind.OVER in {wait.kind for wait in record.waiting}) == is_over

    def test_a_pull_in_progress_outlives_its_event(self) -> None:
        """Events expire after an hour; a slow pull is still a pull."""
        record = look(PodHistory(), starting(), events=[event("Pulling", "Pulling image")])

        record = look(record, starting(), at=4000)

        assert [one.kind for one in record.waiting] == [WaitKind.PULLING]

    def test_a_pulled_image_is_an_ordinary_start(self) -> None:
        record = look(PodHistory(), starting(), events=[event("Pulled", "done"), event("x", "y")])

        assert [one.kind for one in record.waiting] == [WaitKind.STARTING]

    @pytest.mark.parametrize(
        ("state", "change"), [(CREATING, {"phase": "Succeeded"}), (RUNNING, {"deletionTimestamp": stamp(0)})]
    )
    def test_a_pod_that_is_over_or_leaving_waits_for_nothing(
        self, state: dict[str, Any], change: dict[str, Any]
    ) -> None:
        """A pod that ran and is being deleted will not run again, whatever its containers report."""
        record = look(PodHistory(), pod(container(state), **change), pod(container(RUNNING), name="other", uid="u2"))

        assert record.waiting == ()

    def test_a_pod_without_any_status_is_queued(self) -> None:
        """The scheduler has not processed it yet."""
        record = look(PodHistory(), {"metadata": {"name": POD, "uid": "u1"}})

        assert [(one.kind, one.reason) for one in record.waiting] == [(WaitKind.QUEUED, "Pending")]
        assert record.placed == ()

    @pytest.mark.parametrize(("scheduler", "is_told"), [("volcano", True), ("default-scheduler", False)])
    def test_a_pod_that_no_scheduler_has_taken_waits_for_the_one_it_names(
        self, scheduler: str, *, is_told: bool
    ) -> None:
        """It has no condition; the usual scheduler writes one within moments."""
        record = look(PodHistory(), {"metadata": {"name": POD, "uid": "u1"}, "spec": {"schedulerName": scheduler}})

        why = waiting_reason(record, JobStatus(phase=JobPhase.PENDING), replicas=1, rank0=POD)
        said = f"{why}{outlook(record, limits=None)}"

        assert (f"has not been taken by its scheduler, {scheduler}" in said) is is_told
        assert ("leave scheduler_name (--scheduler) out" in said) is is_told

    def test_a_refused_pod_waits_until_it_is_there(self) -> None:
        """The event of a refusal stays for an hour; a pod that was created afterwards makes it obsolete."""
        refusal = event("FailedCreatePod", f'Error creating: pods "{POD}" is forbidden: exceeded quota', name="digits")

        refused = look(PodHistory(), events=[refusal])
        made = look(refused, pod(container(RUNNING)), events=[refusal])

        assert [(one.replica, one.message) for one in refused.waiting] == [(POD, "exceeded quota")]
        assert made.waiting == ()

    def test_a_refusal_without_a_name_counts_while_pods_are_missing(self) -> None:
        """An admission webhook does not name the pod that it refused."""
        refusal = event("FailedCreatePod", 'admission webhook "policy" denied the request', name="digits")

        missing = look(PodHistory(), pod(container(RUNNING)), events=[refusal], replicas=2)
        complete = look(PodHistory(), pod(container(RUNNING)), events=[refusal], replicas=1)

        assert [one.kind for one in missing.waiting] == [WaitKind.FORBIDDEN]
        assert complete.waiting == ()

    def test_a_controller_that_was_a_moment_late_holds_nothing_up(self) -> None:
        """It has retried before anybody reads the event, which stays for an hour."""
        text = "reconciliation failed: Operation cannot be fulfilled: the object has been modified; please apply"

        record = look(PodHistory(), events=[event("TrainJobResourcesCreationFailed", text, name="digits")])

        assert record.waiting == ()

    @pytest.mark.parametrize(
        ("reason", "message", "kind"),
        [
            ("JobCreationFailed", 'jobs.batch "digits-node-0" is forbidden: exceeded quota: x', WaitKind.REFUSED),
            ("HeadlessServiceCreationFailed", 'services "digits" is forbidden: no', WaitKind.FORBIDDEN),
            ("TrainJobResourcesCreationFailed", "TrainJob resources reconciliation failed: no", WaitKind.FORBIDDEN),
        ],
    )
    def test_a_refused_object_is_a_wait_until_it_is_created(self, reason: str, message: str, kind: str) -> None:
        """A Job that creates pods, or tries to, shows that the earlier obstacle is gone."""
        refusal = event(reason, message, name="digits", seconds=1)
        made = event("SuccessfulCreate", "Created pod: digits-node-0-0-abcde", name="digits-node-0", seconds=2)

        waits = look(PodHistory(), events=[refusal]).waiting

        assert [(one.replica, one.kind, one.message) for one in waits] == [("", kind, message)]
        assert look(PodHistory(), events=[made, refusal]).waiting == ()

    def test_a_field_that_the_back_end_does_not_apply_is_noticed_once(self) -> None:
        """The notice stays in the record, so that a second reader reports it too."""
        not_applied = event("NotApplied", "nodeSelector does not apply on this machine", name="digits")

        record = look(look(PodHistory(), events=[not_applied]), events=[not_applied])

        assert record.notices == ("nodeSelector does not apply on this machine",)


class TestClocks:
    def test_the_queue_clock_runs_while_anything_has_no_place(self) -> None:
        """It begins with the first observation and stops when each pod has its node."""
        waiting = look(look(PodHistory(), at=1), at=50)

        placed = look(waiting, pod(container(RUNNING)), at=60)

        assert waiting.queued_since == after(1)
        assert placed.queued_since is None

    @pytest.mark.parametrize(
        ("state", "last", "began"),
        [
            (BACK_OFF, ended(start=2, end=3), after(2)),
            ({"running": {"startedAt": stamp(20)}}, ended(start=2, end=3), after(2)),
            (BACK_OFF, {"terminated": {"exitCode": 128, "startedAt": "1970-01-01T00:00:00Z"}}, None),
        ],
        ids=["between two runs", "in the second run", "never started"],
    )
    def test_a_job_that_is_first_looked_at_in_a_crash_loop_has_run(
        self, state: dict[str, Any], last: dict[str, Any], began: datetime | None
    ) -> None:
        """The kubelet keeps the previous run in lastState, as a follower from the beginning would have observed it."""
        record = look(PodHistory(), pod(container(state, 1, **last)), at=25, replicas=1)

        assert record.first_running_at == began
        assert (record.all_running_at is None) == (began is None)

    def test_all_run_when_the_last_replica_has_started(self) -> None:
        """The operator's Running condition only means that rank 0 runs."""
        one = pod(container(RUNNING))
        other = {**one, "metadata": {"name": "digits-master-0", "uid": "m"}}
        late = {"running": {"startedAt": stamp(30)}}
        other_late = {**other, "status": {"phase": "Running", "containerStatuses": [container(late)]}}

        first = look(PodHistory(), one, replicas=2)
        both = look(first, one, other_late, replicas=2)

        assert (first.first_running_at, first.all_running_at) == (NOW, None)
        assert (both.first_running_at, both.all_running_at) == (NOW, after(30))
