from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ends import (
    FAILED,
    MASTER,
    NAME_ERROR,
    NOW,
    RANKS,
    VALUE_ERROR,
    WAITING,
    WORKER,
    end,
    record_of,
    wait,
)
from ptjob_provider.core.diagnosis import (
    Cause,
    Diagnosis,
    Limits,
    WaitingNotice,
    ending,
    ends_at,
    outlook,
    root_cause,
    waiting_reason,
)
from ptjob_provider.core.diagnosis.classify import Classification, classify
from ptjob_provider.core.history import PodHistory, Restarts, Termination, Waiting, WaitKind
from ptjob_provider.core.status import JobPhase, JobStatus
from rows import each_row

if TYPE_CHECKING:
    from collections.abc import Sequence


RUNNING = JobStatus(phase=JobPhase.RUNNING)


def after(
    seconds: float,
    *waits: Waiting,
    status: JobStatus = WAITING,
    limits: Limits | None = None,
    least: int | None = None,
    **more: Any,
) -> Diagnosis | None:
    record, now = PodHistory(waiting=waits, **more), NOW + timedelta(seconds=seconds)
    return ending(record, status, now=now, limits=limits or Limits(), ranks=RANKS, least=least)


def ended(seconds: float, *waits: Waiting, **more: Any) -> Diagnosis:
    found = after(seconds, *waits, **more)
    assert found is not None, "the job is not ended"
    return found


class TestEnding:
    def test_a_job_that_has_ended_is_not_ended_again(self) -> None:
        assert after(0, wait(WaitKind.BROKEN), status=FAILED) is None

    @pytest.mark.parametrize(
        ("kind", "limits", "seconds"),
        [
            (WaitKind.STUCK, Limits(), 1200),
            (WaitKind.STARTING, Limits(start_timeout=5), 5),
            (WaitKind.INIT, Limits(start_timeout=90), 90),
            (WaitKind.SIDECAR, Limits(), 300),
        ],
    )
    def test_a_wait_ends_at_its_limit_and_not_before(self, kind: WaitKind, limits: Limits, seconds: float) -> None:
        assert after(seconds - 1, wait(kind), limits=limits) is None
        assert after(seconds, wait(kind), limits=limits) is not None

    @each_row("kind", [kind for kind in WaitKind if kind is not WaitKind.BROKEN])
    def test_without_limits_nothing_but_the_impossible_is_ended(self, kind: WaitKind) -> None:
        off = Limits(start_timeout=None, crash_loop_limit=None, sidecar_timeout=None)
        counts = (Restarts(replica=WORKER, container="pytorch", pod_uid="u", count=100),)

        assert after(1e9, wait(kind), limits=off, restart_counts=counts, queued_since=NOW) is None
        assert after(1e9, wait(WaitKind.BROKEN), limits=off) is not None

    def test_a_running_replica_keeps_a_finished_one_waiting(self) -> None:
        """While a replica trains, the sidecar of a finished one does not end the job."""
        assert after(1e6, wait(WaitKind.SIDECAR), running=(MASTER,)) is None

    def test_a_job_whose_pods_have_failed_is_given_up_if_nobody_ends_it(self) -> None:
        """Operators up to 1.7 leave a job `Restarting` after an exit code that is final; others may be down."""
        over, died, again = wait(WaitKind.OVER, ""), end(WORKER, 1, message=VALUE_ERROR), end(WORKER, 1, run=0)
        counts = (Restarts(replica=WORKER, container="pytorch", pod_uid="u", count=1),)

        found = ended(1200, over, terminations=(died,), status=RUNNING)

        assert (found.cause, found.replica, found.retryable) == (Cause.PYTHON_EXCEPTION, WORKER, True)
        assert after(1199, over, terminations=(died,), status=RUNNING) is None
        assert after(1e9, over, terminations=(end(MASTER, 0), end(WORKER, 0)), status=RUNNING) is None
        assert after(1e9, over, terminations=(again, end(WORKER, 0, run=1)), restart_counts=counts) is None

    @each_row("kind", [WaitKind.BROKEN, WaitKind.STARTING, WaitKind.QUEUED])
    def test_an_elastic_job_goes_on_while_it_has_the_replicas_that_it_needs(self, kind: WaitKind) -> None:
        """A replica that does not start, such as on a bad node, ends no training that goes on without it."""
        limits, two = Limits(queue_timeout=60), ("digits-worker-1", "digits-worker-2")
        seen = {"running": two, "queued_since": NOW if kind is WaitKind.QUEUED else None}
        record = PodHistory(waiting=(wait(kind),), **seen)

        ends = [after(3600, wait(kind), status=RUNNING, limits=limits, least=least, **seen) for least in (2, 3, None)]

        assert [each is not None for each in ends] == [False, True, True]
        assert ends_at(record, now=NOW, limits=limits, least=2) is None
        assert outlook(record, limits=limits, least=2).endswith("; there is no time limit")

    def test_a_replica_of_a_training_that_cannot_start_ends_no_elastic_job_at_once(self) -> None:
        """Its node may be at fault: the others run the same program, and may be about to run again."""
        broken = wait(WaitKind.BROKEN)
        trained = PodHistory(waiting=(broken,), first_running_at=NOW)

        assert after(0, broken, least=2) is not None
        assert after(0, broken, first_running_at=NOW) is not None
        assert after(1199, broken, first_running_at=NOW, least=2) is None
        assert after(1200, broken, first_running_at=NOW, least=2) is not None
        assert ends_at(trained, now=NOW, limits=Limits(), least=2) == NOW + timedelta(minutes=20)

    @each_row(
        ("waits", "phase", "cause", "text"),
        [
            ([wait(WaitKind.REFUSED, message="exceeded quota")], JobPhase.PENDING, Cause.QUOTA, "exceeded quota"),
            ([wait(WaitKind.REFUSED, "")], JobPhase.PENDING, Cause.QUOTA, "a replica had no place after 10 s: Reason"),
            ([wait(WaitKind.QUEUED, message="no GPU")], JobPhase.RUNNING, Cause.UNSCHEDULABLE, "no GPU"),
            ([], JobPhase.SUSPENDED, Cause.QUEUED, "it was still suspended after 10 s"),
            ([], JobPhase.PENDING, Cause.QUEUED, "it was still without pods after 10 s"),
        ],
    )
    def test_a_queue_ends_only_where_a_limit_is_set(
        self, waits: list[Waiting], phase: JobPhase, cause: Cause, text: str
    ) -> None:
        """Queueing is normal on a busy cluster."""
        status = JobStatus(phase=phase)
        limited = Limits(queue_timeout=10)

        assert after(1e9, *waits, status=status, queued_since=NOW) is None
        assert after(9, *waits, status=status, queued_since=NOW, limits=limited) is None
        assert after(1e9, *waits, status=status, limits=limited) is None
        found = ended(10, *waits, status=status, queued_since=NOW, limits=limited)
        assert (found.cause, found.retryable, text in found.summary) == (cause, True, True)

    def test_a_job_that_runs_is_not_without_pods_because_none_is_seen(self) -> None:
        """The pods may be unreadable or arrive late, but the operator reports that they run."""
        assert after(1e9, status=RUNNING, queued_since=NOW, limits=Limits(queue_timeout=10)) is None

    def test_a_crash_loop_ends_with_its_limit(self) -> None:
        """The limit is five restarts in a row: the sixth failure."""
        counts = Restarts(replica=WORKER, container="pytorch", pod_uid="u", count=5)
        failed, hopeless = (end(run=5, message=message) for message in (VALUE_ERROR, NAME_ERROR))

        looping = ended(0, restart_counts=(counts,), terminations=(failed,))
        in_vain = ended(0, restart_counts=(counts,), terminations=(hopeless,))
        running = after(0, restart_counts=(counts,), terminations=(end(run=4),))
        below = after(0, wait(WaitKind.CRASH_LOOP), restart_counts=(replace(counts, settled=1),))

        assert (looping.cause, looping.retryable, in_vain.retryable) == (Cause.CRASH_LOOP, True, False)
        assert " and was restarted 5 times: ValueError: bad batch" in looping.summary
        assert (running, below) == (None, None)

    @each_row(
        ("disruption", "more", "runs", "is_loop"),
        [
            ("Evicted: The node was low on resource: memory.", {}, 5, False),
            ("Terminated: Pod was terminated in response to imminent node shutdown.", {}, 5, False),
            ("Evicted: Pod ephemeral local storage usage exceeds the total limit of containers 1Gi.", {}, 5, True),
            ("Evicted: low on memory", {"pod_uid": "one"}, 5, False),  # crashes four times, and is evicted once
            ("Evicted: low on memory", {"pod_uid": "one"}, 6, True),
            ("Evicted: low on memory", {"stopped": True}, 5, True),  # was not counted as a restart
            ("", {}, 5, True),
        ],
    )
    def test_pods_that_the_platform_takes_away_again_and_again_are_no_crash_loop(
        self, disruption: str, more: dict[str, Any], runs: int, *, is_loop: bool
    ) -> None:
        """The operator replaces an evicted pod as one that has crashed."""
        each = {"disruption": disruption, **more}
        ends = [end(code=137, run=run, at=run, **{"pod_uid": f"pod-{run}", **each}) for run in range(runs)]
        counts = Restarts(replica=WORKER, container="pytorch", pod_uid="last", earlier=runs)

        found = after(0, restart_counts=(counts,), terminations=(*ends, end(run=runs, pod_uid="last", at=runs)))

        assert (found is not None) == is_loop

    def test_a_crash_loop_of_which_no_end_was_seen_is_one(self) -> None:
        """The kubelet's waiting reason and the restart count are enough."""
        counts = Restarts(replica=WORKER, container="pytorch", pod_uid="u", count=7)

        found = ended(0, wait(WaitKind.CRASH_LOOP), restart_counts=(counts,))

        assert found.summary == "its containers were restarted 7 times"

    def test_the_wait_that_says_most_is_named_and_the_others_are_counted(self) -> None:
        """Usually all replicas wait for the same reason."""
        stuck = wait(WaitKind.STUCK, reason="RunContainerError", message="device busy")

        found = ended(1200, wait(WaitKind.STARTING, MASTER), stuck)

        assert found.cause is Cause.CANNOT_START
        assert found.summary.startswith(
            f"{WORKER} (rank 1) (and 1 more) did not start within 20 min: RunContainerError"
        )

    def test_a_claim_that_does_not_exist_is_no_want_of_room(self) -> None:
        """The scheduler reports both as "0/1 nodes are available", but a retry does not create the claim."""
        missing = wait(WaitKind.QUEUED, message='0/1 nodes are available: persistentvolumeclaim "data" not found.')

        found = ended(10, missing, queued_since=NOW, limits=Limits(queue_timeout=10))

        assert (found.cause, found.retryable) == (Cause.CONFIG, False)


class TestOutlook:
    def test_a_deadline_that_comes_first_ends_the_wait(self) -> None:
        """Announcing 20 minutes would be wrong if the deadline is in five."""
        late, soon = (NOW + timedelta(minutes=minutes) for minutes in (30, 5))
        starting = PodHistory(waiting=(wait(WaitKind.STARTING),))
        queued = PodHistory(waiting=(wait(WaitKind.QUEUED),), queued_since=NOW)

        assert outlook(starting, limits=Limits(), deadline=late) == "; given up after 20 min (start timeout)"
        assert outlook(starting, limits=Limits(), deadline=soon).endswith("the deadline, 2026-11-20 10:05:00+00:00")
        assert outlook(queued, limits=Limits(), deadline=late).endswith("the deadline, 2026-11-20 10:30:00+00:00")
        assert outlook(queued, limits=Limits(queue_timeout=60)) == "; given up after 1 min (queue timeout)"

    def test_without_a_limit_a_crash_loop_goes_on(self) -> None:
        looping = PodHistory(waiting=(wait(WaitKind.CRASH_LOOP),))

        assert outlook(looping, limits=Limits(crash_loop_limit=None)) == "; there is no time limit"


class TestWaitingNotice:
    def test_a_reason_that_was_reported_is_not_due_again(self) -> None:
        """Otherwise the loop that waits for it would spin."""
        notice = WaitingNotice()
        notice.update("0 of 2; no room", NOW)

        assert notice.is_due(NOW + timedelta(seconds=30))
        assert notice.report("") == "0 of 2; no room"
        assert notice.due() is None


class TestWaitingReason:
    def test_a_job_that_runs_or_has_ended_waits_for_nothing(self) -> None:
        both = PodHistory(running=(MASTER,), finished=(WORKER,), placed=(MASTER, WORKER))

        assert waiting_reason(both, RUNNING, replicas=2, rank0=MASTER) == ""
        assert waiting_reason(PodHistory(), FAILED, replicas=2, rank0=MASTER) == ""

    @pytest.mark.parametrize(
        ("ended", "running", "is_said"),
        [
            (61, [WORKER], True),
            (58, [WORKER], True),
            (30, [WORKER], False),
            (61, [], False),
            (61, [MASTER, WORKER], False),
        ],
        ids=["after it", "as it ended", "before it", "runs no more", "rank 0 runs again"],
    )
    def test_a_replica_that_is_started_again_when_rank_0_has_ended_waits_for_it(
        self, ended: float, running: list[str], *, is_said: bool
    ) -> None:
        """A TrainJob whose rank 0 had completed once ran on for ever without a message."""
        record = PodHistory(
            terminations=(end(MASTER, 0, at=60), end(WORKER, 1, at=ended, message=VALUE_ERROR)),
            running=tuple(running),
            finished=() if MASTER in running else (MASTER,) if WORKER in running else (MASTER, WORKER),
            placed=(MASTER, WORKER),
        )

        said = waiting_reason(record, RUNNING, replicas=2, rank0=MASTER)

        again = f"it was started again after {MASTER} (rank 0) had ended, and may wait for it for ever"
        why = f"{WORKER} exited with code 1: ValueError: bad batch; {again}; delete the job if it does not get on"
        assert said == (why if is_said else "")

    @each_row(("code", "outlook_of"), [(1, "given up after 20 min (start timeout)"), (0, "there is no time limit")])
    def test_a_job_whose_pods_have_all_ended_waits_for_its_controller(self, code: int, outlook_of: str) -> None:
        """A training that has succeeded is not deleted because its controller is late."""
        record = record_of(end(MASTER, code), waiting=(wait(WaitKind.OVER, ""),), finished=(MASTER,), placed=(MASTER,))

        said = waiting_reason(record, RUNNING, replicas=1, rank0=MASTER)

        assert "ptjob doctor" in said
        assert "running" not in said
        assert outlook(record, limits=Limits()) == f"; {outlook_of}"

    @pytest.mark.parametrize(
        ("record", "replicas", "reason"),
        [
            (PodHistory(running=(MASTER,), placed=(MASTER,)), 2, "1 of 2 placed"),
            (
                PodHistory(waiting=tuple(wait(WaitKind.QUEUED, f"w{number}", message="no GPU") for number in range(7))),
                8,
                "0 of 8 placed; w0, w1, w2, 4 more: no GPU",
            ),
            (
                PodHistory(waiting=(wait(WaitKind.STARTING, reason=""),), placed=(WORKER,)),
                1,
                f"0 of 1 running; {WORKER}: is being started",
            ),
        ],
        ids=["a pod that is not there again", "one reason for all", "no reason given"],
    )
    def test_replicas_that_wait_are_counted_and_named_with_their_reason(
        self, record: PodHistory, replicas: int, reason: str
    ) -> None:
        assert waiting_reason(record, WAITING, replicas=replicas, rank0=MASTER) == reason

    def test_of_replicas_that_crash_the_end_of_each_is_classified_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each observation of a job takes the event loop's time from all other jobs."""
        classified: list[str] = []

        def counting(end: Termination, lines: Sequence[str]) -> Classification:
            classified.append(end.key)
            return classify(end, lines)

        monkeypatch.setattr(root_cause, "classify", counting)
        names = [f"worker-{number}" for number in range(20)]
        ends = tuple(end(name, at=run) for name in names for run in range(3))
        looping = PodHistory(terminations=ends, waiting=tuple(wait(WaitKind.CRASH_LOOP, name) for name in names))

        waiting_reason(looping, WAITING, replicas=20, rank0=MASTER)

        assert sorted(classified) == sorted(f"{name}/2" for name in names)

    def test_a_crash_loop_says_how_the_last_run_ended(self) -> None:
        """The kubelet's back-off is not shown, because it changes by itself."""
        counts = (Restarts(replica=WORKER, container="pytorch", pod_uid="u", count=1),)
        record = PodHistory(waiting=(wait(WaitKind.CRASH_LOOP),), restart_counts=counts, placed=(WORKER,))

        unseen = waiting_reason(record, WAITING, replicas=1, rank0=MASTER)
        seen = waiting_reason(replace(record, terminations=(end(code=3),)), WAITING, replicas=1, rank0=MASTER)

        assert unseen == f"0 of 1 running; {WORKER}: crash loop, 1 restart so far"
        assert seen == f"0 of 1 running; {WORKER}: exited with code 3; 1 restart so far"
