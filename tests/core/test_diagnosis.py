from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from ends import (
    FAILED,
    LOST,
    MASTER,
    NOW,
    RANKS,
    REF,
    TEN_SECONDS_LATER,
    VALUE_ERROR,
    WORKER,
    end,
    judged,
    record_of,
)
from ptjob_provider.core.diagnosis import Cause, Diagnosis, deleted, diagnose, outputs_failed, timed_out
from ptjob_provider.core.history import ContainerKind, PodHistory, Removal, Restarts
from ptjob_provider.core.outputs.contract import OutputProblem
from rows import each_row

UNFOLLOWED = "nobody followed the job, so it is unknown how its replicas ended"
REMOVAL = Removal(replica=WORKER, pod_uid="w", requested_at=TEN_SECONDS_LATER)


class TestRoot:
    def test_a_reason_that_comes_within_a_minute_beats_a_lost_connection(self) -> None:
        """Torchrun may need half a minute to end the container with the exception."""
        found = judged(end(MASTER, at=60, message=LOST), end(at=119, message=VALUE_ERROR))

        assert (found.replica, found.cause, found.collateral) == (WORKER, Cause.PYTHON_EXCEPTION, (MASTER,))

    def test_a_reason_that_comes_much_later_is_not_the_cause(self) -> None:
        """An exception an hour later did not break the connection."""
        found = judged(end(MASTER, at=60, message=LOST), end(at=3660, message=VALUE_ERROR))

        assert (found.replica, found.cause, found.also_failed) == (MASTER, Cause.CONNECTION_LOST, (WORKER,))

    def test_the_first_of_two_reasons_is_the_cause(self) -> None:
        """The other failure is reported too, and not as a consequence."""
        found = judged(end(MASTER, 3, at=61), end(WORKER, 4, at=60))

        assert (found.replica, found.also_failed, found.collateral) == (WORKER, (MASTER,), ())

    def test_of_two_ends_in_one_second_that_of_the_lower_rank_is_the_cause(self) -> None:
        """The result must not depend on the order of the ends."""
        ends = end(WORKER, 4), end(MASTER, 3)

        assert judged(*ends).replica == judged(*reversed(ends)).replica == MASTER

    def test_a_reason_is_better_than_a_bare_exit_code_before_it(self) -> None:
        """The 2 KiB of a termination message may contain only torchrun's own lines."""
        found = judged(end(MASTER, 1, at=60), end(WORKER, 1, at=61, message=VALUE_ERROR))

        assert (found.replica, found.also_failed) == (WORKER, (MASTER,))

    def test_an_exit_code_of_the_programs_own_is_a_reason(self) -> None:
        """Exit code 3 is chosen by the program; a later exception of another replica does not explain it."""
        found = judged(end(MASTER, 3, at=60), end(WORKER, 1, at=61, message=VALUE_ERROR))

        assert found.replica == MASTER

    def test_an_exception_before_a_stop_is_the_cause(self) -> None:
        """The peers of a rank that raised may end first; the clean-up then stops that rank as well."""
        found = judged(
            end(MASTER, at=60, message=LOST),
            end(WORKER, 143, at=61, message=VALUE_ERROR, stopped=True),
        )

        assert (found.replica, found.cause) == (WORKER, Cause.PYTHON_EXCEPTION)

    def test_a_disruption_is_a_reason_although_it_stopped_the_pod(self) -> None:
        """A drain deletes the pod; its peers only lose the connection, here a second earlier."""
        found = judged(
            end(MASTER, at=60, message=LOST),
            end(WORKER, 143, at=61, stopped=True, disruption="EvictionByEvictionAPI: Eviction API: evicting"),
        )

        assert (found.replica, found.cause, found.collateral) == (WORKER, Cause.EVICTED, (MASTER,))

    def test_a_pod_that_was_evicted_before_it_trained_is_the_cause_although_it_was_replaced(self) -> None:
        """The operator made a new pod, failed the job for the old one, and deleted both replicas."""
        counts = (Restarts(replica=WORKER, container="init-pytorch", pod_uid="new", earlier=1, settled=1),)
        evicted = end(
            WORKER, 137, at=60, container="init-pytorch", pod_uid="old", disruption="EvictionByEvictionAPI: evicting"
        )
        killed = end(MASTER, 137, at=63)

        found = judged(evicted, killed, restart_counts=counts, operator_deleted=(MASTER, WORKER))
        alone = judged(evicted, killed, restart_counts=counts, operator_deleted=(WORKER,))
        later = judged(evicted, end(MASTER, 137, at=600), restart_counts=counts, operator_deleted=(MASTER, WORKER))
        raised = judged(
            evicted, end(MASTER, at=63, message=VALUE_ERROR), restart_counts=counts, operator_deleted=(MASTER, WORKER)
        )

        unseen = judged(evicted, restart_counts=counts)

        assert (found.replica, found.cause) == (WORKER, Cause.EVICTED)
        assert [each.cause for each in (alone, later, raised)] == [Cause.KILLED, Cause.KILLED, Cause.PYTHON_EXCEPTION]
        assert unseen.cause is Cause.UNKNOWN, "the job may have trained for hours since"

    def test_a_kill_after_the_failure_is_the_clean_up(self) -> None:
        """A replica that ignores SIGTERM is killed at the end of its grace period."""
        found = judged(end(MASTER, 1, at=60, message=VALUE_ERROR), end(WORKER, 137, at=90))

        assert (found.replica, found.collateral) == (MASTER, (WORKER,))

    @pytest.mark.parametrize(
        ("seen", "said"),
        [
            (PodHistory(), UNFOLLOWED),
            (PodHistory(queued_since=TEN_SECONDS_LATER), UNFOLLOWED),
            (PodHistory(queued_since=NOW), "no replica was seen failing"),
            (record_of(end(code=0)), "no replica was seen failing"),
            (record_of(end(MASTER, 143, stopped=True)), "no replica was seen failing"),
        ],
        ids=["nothing", "looked at after its end", "waited without pods", "an end", "stopped from outside"],
    )
    def test_a_failed_job_that_nobody_followed_is_said_to_be_one(self, seen: PodHistory, said: str) -> None:
        """Its pods are gone with the job, as for a TrainJob, so "no replica was seen failing" would mislead."""
        failed = replace(FAILED, message="it broke", finished_at=TEN_SECONDS_LATER)

        found = diagnose(seen, failed, ranks=RANKS)

        assert (found.cause, found.summary) == (Cause.UNKNOWN, f"{said}; the job says: it broke")
        assert ("ptjob follow" in found.resolution) is (said == UNFOLLOWED)
        assert diagnose(seen, FAILED, ranks=RANKS).summary.endswith("; the job does not say why")

    def test_a_backoff_limit_that_nobody_saw_reached_is_read_from_the_job(self) -> None:
        """An hour later, pods and events are gone."""
        found = judged(status=replace(FAILED, message="Job x has failed because it has reached the backoff limit"))

        assert (found.cause, found.retryable) == (Cause.BACKOFF_LIMIT, True)
        assert found.summary.startswith("its replicas failed up to the backoff limit; the job says: Job x has failed")

    @each_row(("message", "log"), [("Error: bad batch", VALUE_ERROR), (VALUE_ERROR, "epoch 1")])
    def test_a_log_beats_the_record_unless_it_broke_off(self, message: str, log: str) -> None:
        """It contains more than the kubelet's 2 KiB, but its connection may have ended before the container did."""
        tails = {WORKER: log.splitlines()}

        found = diagnose(record_of(end(message=message)), FAILED, ranks=RANKS, tails=tails)

        assert (found.cause, found.log_tail[-1]) == (Cause.PYTHON_EXCEPTION, "ValueError: bad batch")

    def test_a_log_belongs_to_the_last_run(self) -> None:
        """Output after a restart does not explain the restart."""
        counts = (Restarts(replica=WORKER, container="pytorch", pod_uid="u", count=1),)
        record = record_of(end(run=0, at=10, message=VALUE_ERROR), end(run=1, at=60, code=143), restart_counts=counts)

        found = diagnose(record, FAILED, ranks=RANKS, tails={WORKER: ["epoch 1"]})

        assert found.summary.endswith("ValueError: bad batch")

    @pytest.mark.parametrize(
        ("of_rank_0", "of_rank_1"),
        [
            ([(44, 58), (59, 69), (83, 92), (117, 122)], [(45, 56), (57, 68), (80, 90), (118, 123)]),
            ([(29, 37), (37, 53), (68, 87), (113, 120)], [(30, 36), (37, 51), (65, 87), (117, 120)]),
        ],
        ids=["the first of the last runs", "the first of the runs before"],
    )
    def test_of_replicas_that_are_started_again_together_the_one_that_ended_first_is_named(
        self, of_rank_0: list[tuple[int, int]], of_rank_1: list[tuple[int, int]]
    ) -> None:
        """Two recorded TrainJobs: rank 1 raised in each run without a message; the clean-up stopped the last runs."""
        ends = [
            end(name, 137 if number == 3 else 1, at=ended, started_at=NOW + timedelta(seconds=began), run=number)
            for name, runs in ((MASTER, of_rank_0), (WORKER, of_rank_1))
            for number, (began, ended) in enumerate(runs)
        ]
        counts = tuple(Restarts(replica=name, container="pytorch", pod_uid="u", count=3) for name in RANKS)

        found = judged(*(replace(one, stopped=one.exit_code == 137) for one in ends), restart_counts=counts)

        assert (found.replica, found.collateral) == (WORKER, (MASTER,))
        assert found.summary == f"{WORKER} (rank 1) exited with code 1 and was restarted 3 times"

    def test_the_kubelets_message_about_a_lost_log_is_not_in_the_log_tail(self) -> None:
        """The log folder of an evicted pod may be deleted before the kubelet reads it."""
        lost = "Error on reading termination message from logs: failed to try resolving symlinks in path"

        found = judged(end(code=137, disruption="Evicted: too much", message=lost))

        assert found.log_tail == ()

    def test_of_two_removals_in_one_second_the_one_that_says_why_counts(self) -> None:
        """The operator deletes the other pods in the same second, and its event may arrive later."""
        swept = replace(REMOVAL, replica=MASTER, pod_uid="m")
        evicted = replace(REMOVAL, disruption="EvictionByEvictionAPI: drained")

        found = judged(removals=(swept, evicted))

        assert (found.cause, found.replica) == (Cause.EVICTED, WORKER)

    @each_row(
        ("code", "at", "message", "cause"),
        [
            (1, 12, VALUE_ERROR, Cause.PYTHON_EXCEPTION),
            (3, 12, "", Cause.EXIT_CODE),
            (1, 5, LOST, Cause.CONNECTION_LOST),
            (137, 10, "", Cause.KILLED),
        ],
    )
    def test_a_removal_explains_neither_what_came_before_nor_what_the_program_has_chosen(
        self, code: int, at: float, message: str, cause: Cause
    ) -> None:
        found = judged(end(MASTER, code, at=at, message=message), removals=(REMOVAL,))

        assert (found.replica, found.cause) == (MASTER, cause)

    def test_a_kill_after_the_job_has_failed_follows_from_a_removal_that_was_seen_late(self) -> None:
        """For a pod that is already gone, the time of its deletion is unknown."""
        status = replace(FAILED, finished_at=TEN_SECONDS_LATER)
        late = replace(REMOVAL, requested_at=NOW + timedelta(seconds=14))

        found = judged(end(MASTER, 137, at=12), status=status, removals=(late,))

        assert (found.replica, found.cause) == (WORKER, Cause.TERMINATED)

    def test_a_master_that_runs_is_not_said_to_have_kept_a_worker_waiting(self) -> None:
        """In this case the init container could not resolve the master's name."""
        gave_up = end(WORKER, 1, container="init-pytorch", kind=ContainerKind.INIT)

        unseen = diagnose(record_of(gave_up), FAILED, ranks=RANKS)
        runs = diagnose(replace(record_of(gave_up), running=(MASTER,)), FAILED, ranks=RANKS)

        assert (unseen.cause, "gave up waiting for the master" in unseen.summary) == (Cause.START_TIMEOUT, True)
        assert (runs.cause, "init container init-pytorch exited with code 1" in runs.summary) == (Cause.INIT, True)


class TestReport:
    def test_the_tail_is_bounded_in_lines_and_bytes(self) -> None:
        """It contains the last 40 lines or 4 KiB; a longer line keeps its end."""
        many = Diagnosis.of(Cause.UNKNOWN, "x", log_tail=tuple(str(number) for number in range(100)))
        long = Diagnosis.of(Cause.UNKNOWN, "x", log_tail=("first", "é" * 5000 + "!"))

        assert many.report(REF).splitlines()[1:3] == ["Last lines of the log:", "  60"]
        assert long.report(REF).splitlines()[2].endswith("é!")
        assert len(long.report(REF).splitlines()[2].encode()) <= 4096 + 2

    def test_a_single_last_line_that_the_summary_quotes_is_not_repeated(self) -> None:
        """The container that fetches code has such a line; two lines add something to the summary."""
        said = "code sync failed: there is no such repository"
        once = Diagnosis.of(Cause.CODE, "could not fetch the code: there is no such repository", log_tail=(said,))

        assert once.details(REF) == []
        assert replace(once, log_tail=("begins", said)).details(REF) == [
            "Last lines of the log:",
            "  begins",
            f"  {said}",
        ]

    def test_lines_of_another_replica_have_its_name(self) -> None:
        """The log of rank 0 must not look like the log of the failed rank 1."""
        found = Diagnosis.of(Cause.KILLED, "x", replica=WORKER, log_tail=("epoch 1",), tail_of=MASTER)

        title = "No last lines of digits-worker-0 are known; last lines of digits-master-0:"
        assert found.report(REF).splitlines()[1] == title

    def test_many_replicas_are_counted(self) -> None:
        names = tuple(f"digits-worker-{number}" for number in range(8))

        found = Diagnosis.of(Cause.KILLED, "x", collateral=names, also_failed=names[:1])

        lines = found.report(REF).splitlines()
        assert lines[1].startswith("worker-0, worker-1, worker-2, worker-3, worker-4, 3 more failed as a consequence")
        assert lines[2] == "worker-0 failed as well."

    def test_a_replica_whose_training_had_not_started_is_not_said_to_have_failed(self) -> None:
        """The clean-up stops the init container of a waiting worker, which the kubelet reports as an error."""
        init = end(WORKER, 137, at=61, container="init-pytorch", kind=ContainerKind.INIT, stopped=True)

        found = judged(end(MASTER, 127), init)
        lost = judged(init, removals=(replace(REMOVAL, replica=MASTER),))

        assert (found.replica, found.collateral, found.unstarted) == (MASTER, (WORKER,), (WORKER,))
        assert found.report(REF).splitlines()[1] == lost.report(REF).splitlines()[1] == "worker-0 had not started."

    def test_a_deletion_and_a_timeout_are_not_called_failures(self) -> None:
        gone = deleted(PodHistory(), ranks=RANKS)
        late = timed_out(PodHistory(running=(MASTER, WORKER)), ranks=RANKS)

        assert gone.report(REF).startswith("team/digits is gone: somebody deleted it before it had ended. ")
        assert late.report(REF).startswith("team/digits timed out: it was unfinished at the deadline; ")
        assert "; until then master-0 (rank 0), worker-0 (rank 1) ran. " in late.report(REF)
        assert (gone.retryable, late.retryable) == (False, True)

    def test_an_earlier_failure_is_part_of_the_summary_of_a_deletion_or_a_timeout(self) -> None:
        """An earlier failure of a worker is the likely reason why the others hang."""
        record = record_of(end(message=VALUE_ERROR))

        gone = deleted(record, ranks=RANKS)
        late = timed_out(record, ranks=RANKS, waiting="1 of 2 running")

        earlier = f"before that {WORKER} (rank 1) exited with code 1: ValueError: bad batch"
        assert gone.summary == f"somebody deleted it before it had ended; {earlier}"
        assert late.summary == f"it was still waiting at the deadline (1 of 2 running); {earlier}"
        assert late.log_tail[-1] == "ValueError: bad batch"

    def test_a_deadline_without_running_replicas_names_no_replica(self) -> None:
        """The pods may already be gone."""
        status = replace(FAILED, message="Job x has failed because it was active longer than specified deadline")

        assert judged(status=status).summary == "it was active longer than its active deadline"

    def test_missing_outputs_name_their_replica_and_what_to_do(self) -> None:
        problem = OutputProblem(summary="no model", resolution="Write it")

        found = outputs_failed([problem, problem], replica=MASTER)
        nameless = outputs_failed([problem])

        assert found.report(REF).splitlines()[0] == (
            "team/digits failed: master-0 (rank 0) ran to its end, but no model; no model. "
            "Write it; a retry would fail the same way."
        )
        assert nameless.summary == "it ran to its end, but no model"
