from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ptjob_provider.core.diagnosis import (
    Cause,
    Diagnosis,
    Limits,
    deleted,
    diagnose,
    ending,
    outputs_failed,
    tail,
    timed_out,
    waiting_reason,
)
from ptjob_provider.core.diagnosis.finding import find
from ptjob_provider.core.diagnosis.verdict import ADVICE
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.outputs import OutputCause, OutputProblem
from ptjob_provider.core.recorder import ContainerKind, Record, Restarts, Termination, Waiting, WaitKind
from ptjob_provider.core.status import JobPhase, JobStatus
from recorded import DATA
from story import STORIES, read, tell

NOW = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)
FAILED = JobStatus(phase=JobPhase.FAILED)
WAITING = JobStatus(phase=JobPhase.PENDING)
REF = JobRef(kind="PyTorchJob", namespace="team", name="digits", uid="1")
MASTER, WORKER = "digits-master-0", "digits-worker-0"
RANKS = {MASTER: 0, WORKER: 1}
VALUE_ERROR = 'Traceback (most recent call last):\n  File "/app/train.py", line 3, in <module>\nValueError: bad batch\n'
LOST = VALUE_ERROR.replace(
    "ValueError: bad batch", "RuntimeError: [gloo/transport/tcp/pair.cc:561] Connection closed by"
)


def end(replica: str = WORKER, code: int | None = 1, *, at: float = 60, **more: Any) -> Termination:
    fields = {"key": f"{replica}/{at}", "container": "pytorch", "finished_at": NOW + timedelta(seconds=at)}
    return Termination(**{**fields, **more, "replica": replica, "exit_code": code})


def record_of(*ends: Termination, **more: Any) -> Record:
    return Record(terminations=ends, **more)


def judged(*ends: Termination, status: JobStatus = FAILED, **more: Any) -> Diagnosis:
    return diagnose(record_of(*ends, **more), status, ranks=RANKS)


def wait(
    kind: WaitKind, replica: str = WORKER, *, reason: str = "Reason", message: str = "", since: float = 0
) -> Waiting:
    at = NOW + timedelta(seconds=since)
    return Waiting(replica=replica, kind=kind, reason=reason, message=message, since=at, container="pytorch")


def after(seconds: float, *waits: Waiting, limits: Limits | None = None, **more: Any) -> Diagnosis | None:
    status = more.pop("status", WAITING)
    record = Record(waiting=waits, **more)
    now = NOW + timedelta(seconds=seconds)
    return ending(record, status, now=now, limits=limits or Limits(), ranks=RANKS)


class TestStories:
    @pytest.mark.parametrize("name", STORIES)
    def test_a_recorded_story_is_told_as_agreed(self, name: str) -> None:
        """The texts that people read and the answers that programs act on are the ones in tests/data/golden."""
        assert tell(name) == (DATA / "golden" / f"{name}.txt").read_text()

    @pytest.mark.parametrize("name", [name for name in STORIES if read(name).diagnosis])
    def test_a_diagnosis_crosses_processes(self, name: str) -> None:
        """What a trigger found is what the worker raises."""
        found = read(name).diagnosis
        assert found is not None

        restored = Diagnosis.from_dict(json.loads(json.dumps(found.to_dict())))

        assert restored == found

    @pytest.mark.parametrize("name", [name for name in STORIES if read(name).diagnosis])
    def test_the_first_line_says_which_job_and_what_next(self, name: str) -> None:
        """The first line stands alone: an e-mail shows no more than that."""
        story = read(name)
        assert story.diagnosis is not None

        first = story.diagnosis.report(story.ref).splitlines()[0]

        assert first.startswith("team/digits-1a2b3c4d failed: ")
        assert story.diagnosis.resolution in first

    def test_every_cause_has_its_advice(self) -> None:
        """A new cause without a resolution and an answer on retries would fail when it is needed."""
        assert set(ADVICE) == set(Cause)


class TestRoot:
    def test_a_reason_that_comes_within_a_minute_beats_a_lost_connection(self) -> None:
        """Torchrun may need half a minute to end the container in which the exception was raised."""
        found = judged(end(MASTER, at=60, message=LOST), end(at=119, message=VALUE_ERROR))

        assert (found.replica, found.cause, found.collateral) == (WORKER, Cause.PYTHON_EXCEPTION, (MASTER,))

    def test_a_reason_that_comes_much_later_is_another_story(self) -> None:
        """What happened an hour afterwards did not break the connection."""
        found = judged(end(MASTER, at=60, message=LOST), end(at=3660, message=VALUE_ERROR))

        assert (found.replica, found.cause, found.also_failed) == (MASTER, Cause.CONNECTION_LOST, (WORKER,))

    def test_the_first_of_two_reasons_is_the_cause(self) -> None:
        """The other one is told as well, and not called a consequence."""
        found = judged(end(MASTER, 3, at=61), end(WORKER, 4, at=60))

        assert (found.replica, found.also_failed, found.collateral) == (WORKER, (MASTER,), ())

    def test_of_two_ends_in_one_second_the_lower_rank_is_told(self) -> None:
        """The choice is the same whoever looks and however often."""
        ends = end(WORKER, 4), end(MASTER, 3)

        assert judged(*ends).replica == judged(*reversed(ends)).replica == MASTER

    def test_a_reason_is_better_than_a_bare_exit_code_before_it(self) -> None:
        """2 KiB of log may hold torchrun's own words alone; a replica that says why tells the story."""
        found = judged(end(MASTER, 1, at=60), end(WORKER, 1, at=61, message=VALUE_ERROR))

        assert (found.replica, found.also_failed) == (WORKER, (MASTER,))

    def test_an_exit_code_of_the_programs_own_is_a_reason(self) -> None:
        """A program that ends with 3 has decided so; what another one raises afterwards does not explain it."""
        found = judged(end(MASTER, 3, at=60), end(WORKER, 1, at=61, message=VALUE_ERROR))

        assert found.replica == MASTER

    def test_what_was_said_before_a_stop_is_a_reason(self) -> None:
        """The peers of a rank that raised may die first; then the clean-up stops it in its last breath."""
        found = judged(
            end(MASTER, at=60, message=LOST),
            end(WORKER, 143, at=61, message=VALUE_ERROR, stopped=True),
        )

        assert (found.replica, found.cause) == (WORKER, Cause.PYTHON_EXCEPTION)

    def test_a_kill_after_the_failure_is_the_clean_up(self) -> None:
        """A replica that ignores SIGTERM is killed at the end of its grace."""
        found = judged(end(MASTER, 1, at=60, message=VALUE_ERROR), end(WORKER, 137, at=90))

        assert (found.replica, found.collateral) == (MASTER, (WORKER,))

    def test_a_container_that_nobody_saw_fail_has_no_cause(self) -> None:
        """Where everything was stopped from outside, the job's own words are all there is."""
        found = judged(end(MASTER, 143, stopped=True), status=replace(FAILED, message="it broke."))

        assert found.cause is Cause.UNKNOWN
        assert found.summary == "no replica was seen failing; the job says: it broke."

    def test_a_job_that_says_nothing_is_said_to_say_nothing(self) -> None:
        """Nothing is invented."""
        assert "does not say why" in judged().summary
        assert Diagnosis.unknown().retryable

    def test_a_sidecar_alone_can_be_the_cause(self) -> None:
        """A pod fails with any of its containers."""
        found = judged(end(code=1, container="proxy", kind=ContainerKind.SIDECAR))

        assert found.summary == f"{WORKER} (rank 1) sidecar container proxy exited with code 1"

    def test_a_longer_log_beats_the_record(self) -> None:
        """Where the log can still be read it says more than the kubelet's 2 KiB."""
        tails = {WORKER: VALUE_ERROR.splitlines()}

        found = diagnose(record_of(end(message="Error: bad batch")), FAILED, ranks=RANKS, tails=tails)

        assert found.cause is Cause.PYTHON_EXCEPTION
        assert found.log_tail[-1] == "ValueError: bad batch"

    def test_a_log_that_broke_off_does_not_beat_the_record(self) -> None:
        """The reader's connection may have ended before the container did."""
        tails = {WORKER: ["epoch 1"]}

        found = diagnose(record_of(end(message=VALUE_ERROR)), FAILED, ranks=RANKS, tails=tails)

        assert found.log_tail[-1] == "ValueError: bad batch"

    def test_a_log_belongs_to_the_last_run(self) -> None:
        """What a replica printed after its restart is not why it was restarted."""
        counts = (Restarts(replica=WORKER, container="pytorch", pod_uid="u", count=1),)
        record = record_of(end(run=0, at=10, message=VALUE_ERROR), end(run=1, at=60, code=143), restart_counts=counts)

        found = diagnose(record, FAILED, ranks=RANKS, tails={WORKER: ["epoch 1"]})

        assert found.summary.endswith("ValueError: bad batch")

    def test_torchruns_own_words_do_not_hide_the_exception(self) -> None:
        """With the whole log at hand the tail ends where torchrun begins to talk."""
        agent = ["E1120 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 0"]
        block = [
            "Root Cause (first observed failure):",
            "[0]:",
            "  rank      : 1 (local_rank: 0)",
            "  exitcode  : 1 (pid: 4)",
        ]
        own = [f"[rank1]: {line}" for line in VALUE_ERROR.splitlines()]

        found = diagnose(record_of(end()), FAILED, ranks=RANKS, tails={WORKER: [*own, *agent, *block]})

        assert found.summary == f"process rank 1 of {WORKER} (rank 1) exited with code 1: ValueError: bad batch"
        assert found.log_tail == tuple(own)

    def test_a_replica_of_unknown_rank_goes_by_its_name(self) -> None:
        """A pod that the manifest does not know is named, without a rank."""
        found = diagnose(record_of(end("stranger", 3)), FAILED, ranks=RANKS)

        assert found.summary == "stranger exited with code 3"


class TestFinding:
    @pytest.mark.parametrize(
        ("more", "cause", "retryable"),
        [
            ({"code": 1, "message": VALUE_ERROR}, Cause.PYTHON_EXCEPTION, False),
            ({"code": 125}, Cause.EXIT_CODE, False),
            ({"code": 255}, Cause.EXIT_CODE, False),
            ({"code": 126}, Cause.PROGRAM_MISSING, False),
            ({"code": 127}, Cause.PROGRAM_MISSING, False),
            (
                {"code": 128, "reason": "ContainerCannotRun", "message": "permission denied"},
                Cause.PROGRAM_MISSING,
                False,
            ),
            (
                {"code": 130, "message": VALUE_ERROR.replace("ValueError: bad batch", "KeyboardInterrupt")},
                "terminated",
                True,
            ),
            ({"code": 137, "reason": "OOMKilled"}, Cause.OUT_OF_MEMORY, False),
            ({"code": 137, "message": VALUE_ERROR}, Cause.KILLED, True),
            ({"code": 1, "signal": 9}, Cause.KILLED, True),
            ({"code": 1, "signal": 99}, Cause.CRASHED, False),
            ({"code": 143}, Cause.TERMINATED, True),
            ({"code": None}, Cause.UNKNOWN, True),
            ({"code": 137, "disruption": "SupervisorLost"}, Cause.SUPERVISOR_LOST, True),
            ({"code": 143, "disruption": "DeadlineExceeded: Pod was active"}, Cause.DEADLINE, False),
            ({"code": 143, "disruption": "EvictionByEvictionAPI: drained"}, Cause.EVICTED, True),
            ({"code": 137, "disruption": "NodeShutdown"}, Cause.NODE_LOST, True),
        ],
    )
    def test_what_an_end_means_and_whether_a_retry_helps(
        self, more: dict[str, Any], cause: str, *, retryable: bool
    ) -> None:
        """The table of causes: the program's fault is not retried, what came from outside is."""
        found = judged(end(**more))

        assert (found.cause, found.retryable) == (cause, retryable)

    @pytest.mark.parametrize(
        ("error", "cause", "retryable"),
        [
            ("requests.exceptions.ConnectTimeout: no answer", Cause.PYTHON_EXCEPTION, True),
            ("RuntimeError: CUDA error: uncorrectable ECC error encountered", Cause.PYTHON_EXCEPTION, True),
            ("RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed. ", Cause.PYTHON_EXCEPTION, False),
            ("RuntimeError: unable to write to file </torch_1_2>", Cause.SHARED_MEMORY, False),
        ],
    )
    def test_some_exceptions_give_more_away(self, error: str, cause: Cause, *, retryable: bool) -> None:
        """A server or a GPU at fault may be another one the next time."""
        found = judged(end(message=VALUE_ERROR.replace("ValueError: bad batch", error)))

        assert (found.cause, found.retryable) == (cause, retryable)

    def test_a_lost_server_that_was_not_the_end_is_no_reason_to_retry(self) -> None:
        """An exception that was handled and followed by another one did not end the program."""
        lost = VALUE_ERROR.replace("ValueError: bad batch", "TimeoutError: slow")

        found = judged(
            end(message=f"{lost}\nDuring handling of the above exception, another occurred:\n\n{VALUE_ERROR}")
        )

        assert not found.retryable

    def test_a_process_of_torchrun_without_a_rank_is_the_pods(self) -> None:
        """A block that was cut off still says that there was a failure, not whose."""
        block = "Root Cause (first observed failure):\n[0]:\n  time : now\n"

        finding = find(end(), tail.lines_of(block))

        assert (finding.process, finding.cause) == ("", Cause.EXIT_CODE)

    def test_the_lines_of_another_rank_are_not_this_ones_reason(self) -> None:
        """With several processes in a pod each marks its lines; the blamed one's count."""
        log = "".join(f"[rank0]: {line}\n" for line in LOST.splitlines())
        block = (
            "Root Cause (first observed failure):\n[0]:\n  rank      : 1 (local_rank: 1)\n  exitcode  : -11 (pid: 4)\n"
        )

        finding = find(end(), tail.lines_of(log + block))

        assert (finding.process, finding.cause, finding.did) == ("1", Cause.CRASHED, "died of SIGSEGV (exit code 139)")


class TestTail:
    def test_the_last_exception_of_a_chain_comes_last(self) -> None:
        """That is the one that ended the program."""
        lines = f"{VALUE_ERROR}\nThe above exception was the direct cause:\n\n{VALUE_ERROR.replace('Value', 'Key')}"

        assert tail.python_errors(lines.split("\n")) == ("ValueError: bad batch", "KeyError: bad batch")

    def test_a_traceback_without_its_head_is_one(self) -> None:
        """2 KiB may begin in its middle."""
        assert tail.python_errors(VALUE_ERROR.splitlines()[1:]) == ("ValueError: bad batch",)

    def test_an_exception_that_python_ignored_is_no_reason(self) -> None:
        """Destructors complain after the exception that ended the program."""
        lines = f"{VALUE_ERROR}Exception ignored in: <function Pool.__del__>\n{VALUE_ERROR.replace('Value', 'Type')}"

        assert tail.python_errors(lines.splitlines()) == ("ValueError: bad batch",)

    def test_a_traceback_that_other_output_cut_in_pieces_still_has_its_last_line(self) -> None:
        """Several processes write into one log."""
        lines = ["Traceback (most recent call last):", "loss 0.3", '  File "a.py", line 1', "loss 0,2", "KeyError: 3"]

        assert tail.python_errors(lines) == ("KeyError: 3",)

    def test_a_line_that_only_looks_like_an_exception_is_none(self) -> None:
        """Without a traceback it is a log line."""
        assert tail.python_errors(["ValueError: caught and logged"]) == ()

    @pytest.mark.parametrize("text", ["{", "{}", '{"message": 3}', '{"message": {}}'])
    def test_json_that_is_no_error_file_is_skipped(self, text: str) -> None:
        """A program may print JSON of its own."""
        assert [error for error in tail.python_errors([text]) if error != "3"] in ([], [""])

    def test_a_progress_bar_shows_its_last_state(self) -> None:
        """It rewrote its line a thousand times."""
        assert tail.lines_of(" 0%\r 50%\r100%\r\ndone\n") == ("100%", "done")

    def test_a_long_text_is_cut(self) -> None:
        """A sentence is one line of bounded length."""
        assert tail.clip("a\n" * 400, 9) == "a a a a …"


class TestReport:
    def test_the_tail_is_bounded_in_lines_and_bytes(self) -> None:
        """40 lines or 4 KiB, the last ones; one line that is longer keeps its end."""
        many = Diagnosis.of(Cause.UNKNOWN, "x", log_tail=tuple(str(number) for number in range(100)))
        long = Diagnosis.of(Cause.UNKNOWN, "x", log_tail=("first", "é" * 5000 + "!"))

        assert many.report(REF).splitlines()[1:3] == ["Last lines of the log:", "  60"]
        assert long.report(REF).splitlines()[2].endswith("é!")
        assert len(long.report(REF).splitlines()[2].encode()) <= 4096 + 2

    def test_another_replicas_lines_are_called_so(self) -> None:
        """The log of rank 0 beside the failure of rank 1 must not pass for its own."""
        found = Diagnosis.of(Cause.KILLED, "x", replica=WORKER, log_tail=("epoch 1",), tail_of=MASTER)

        title = "No last lines of digits-worker-0 are known; last lines of digits-master-0:"
        assert found.report(REF).splitlines()[1] == title

    def test_many_replicas_are_counted(self) -> None:
        """A hundred names help nobody."""
        names = tuple(f"digits-worker-{number}" for number in range(8))

        found = Diagnosis.of(Cause.KILLED, "x", collateral=names, also_failed=names[:1])

        lines = found.report(REF).splitlines()
        assert lines[1].startswith(
            "worker-0, worker-1, worker-2, worker-3, worker-4, 3 more failed afterwards: collateral"
        )
        assert lines[2] == "worker-0 failed as well."

    def test_a_deletion_and_a_timeout_are_not_called_failures(self) -> None:
        """The first words say what happened to the job."""
        gone = deleted(Record(), ranks=RANKS)
        late = timed_out(Record(running=(MASTER, WORKER)), ranks=RANKS)

        assert gone.report(REF).startswith("team/digits was deleted: somebody deleted it while it was waited for. ")
        assert late.report(REF).startswith("team/digits timed out: it was unfinished at the deadline; ")
        assert "; until then master-0 (rank 0), worker-0 (rank 1) ran. " in late.report(REF)
        assert (gone.retryable, late.retryable) == (False, True)

    def test_what_failed_before_a_deletion_or_a_timeout_is_told(self) -> None:
        """A worker that died an hour ago is the likely reason why the others hang."""
        record = record_of(end(message=VALUE_ERROR))

        gone = deleted(record, ranks=RANKS)
        late = timed_out(record, ranks=RANKS, waiting="1 of 2 running")

        told = f"before that {WORKER} (rank 1) exited with code 1: ValueError: bad batch"
        assert gone.summary == f"somebody deleted it while it was waited for; {told}"
        assert late.summary == f"it was still waiting at the deadline (1 of 2 running); {told}"
        assert late.log_tail[-1] == "ValueError: bad batch"

    def test_a_deadline_nobody_ran_at_names_nobody(self) -> None:
        """The pods may be gone before anybody looked."""
        status = replace(FAILED, message="Job x has failed because it was active longer than specified deadline")

        assert judged(status=status).summary == "it was active longer than its active_deadline_seconds"

    def test_many_replicas_at_a_deadline_are_counted(self) -> None:
        """Three names and a number."""
        ranks = {f"w{number}": number for number in range(5)}

        found = timed_out(Record(running=tuple(ranks)), ranks=ranks)

        assert found.summary.endswith("until then w0 (rank 0), w1 (rank 1), w2 (rank 2), 2 more ran")

    def test_a_lost_supervisor_without_words_has_some(self) -> None:
        """The text does not depend on the back-end's message."""
        found = judged(status=replace(FAILED, reason="SupervisorLost"))

        assert found.summary == "the process that ran its replicas is gone"

    def test_missing_outputs_name_their_replica_and_what_to_do(self) -> None:
        """The training ended well and still was for nothing."""
        problem = OutputProblem(output="model", cause=OutputCause.MISSING, summary="no model", resolution="Write it")

        found = outputs_failed([problem, problem], replica=MASTER)
        nameless = outputs_failed([problem])

        assert found.report(REF).splitlines()[0] == (
            "team/digits failed: master-0 (rank 0) ran to its end, but no model; no model. "
            "Write it; a retry would fail the same way."
        )
        assert nameless.summary == "it ran to its end, but no model"


class TestEnding:
    def test_a_job_that_has_ended_is_not_ended_again(self) -> None:
        """The operator's verdict stands."""
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
        """The table of waits and their limits."""
        before, then = (after(at, wait(kind), limits=limits) for at in (seconds - 1, seconds))

        assert before is None
        assert then is not None

    @pytest.mark.parametrize("kind", [kind for kind in WaitKind if kind is not WaitKind.BROKEN])
    def test_without_limits_nothing_but_the_impossible_is_ended(self, kind: WaitKind) -> None:
        """Every limit can be switched off."""
        off = Limits(start_timeout=None, crash_loop_limit=None, sidecar_timeout=None)
        counts = (Restarts(replica=WORKER, container="pytorch", pod_uid="u", count=100),)

        assert after(1e9, wait(kind), limits=off, restart_counts=counts, queued_since=NOW) is None
        assert after(1e9, wait(WaitKind.BROKEN), limits=off) is not None

    def test_a_running_replica_keeps_a_finished_one_waiting(self) -> None:
        """While anybody trains, a sidecar beside a finished replica is no reason to end the job."""
        assert after(1e6, wait(WaitKind.SIDECAR), running=(MASTER,)) is None

    @pytest.mark.parametrize(
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
        """Queues are what a busy cluster has."""
        status = JobStatus(phase=phase)
        limited = Limits(queue_timeout=10)

        assert after(1e9, *waits, status=status, queued_since=NOW) is None
        assert after(9, *waits, status=status, queued_since=NOW, limits=limited) is None
        assert after(1e9, *waits, status=status, limits=limited) is None
        found = after(10, *waits, status=status, queued_since=NOW, limits=limited)
        assert found is not None
        assert (found.cause, found.retryable, text in found.summary) == (cause, True, True)

    def test_a_crash_loop_ends_with_its_limit(self) -> None:
        """Five restarts in a row, the sixth failure."""
        counts = Restarts(replica=WORKER, container="pytorch", pod_uid="u", count=5)
        failed = end(run=5, message=VALUE_ERROR)

        looping = after(0, restart_counts=(counts,), terminations=(failed,))
        running = after(0, restart_counts=(counts,), terminations=(end(run=4),))
        below = after(0, wait(WaitKind.CRASH_LOOP), restart_counts=(replace(counts, settled=1),))

        assert looping is not None
        assert (looping.cause, looping.retryable) == (Cause.CRASH_LOOP, False)
        assert "after 5 restarts: ValueError: bad batch" in looping.summary
        assert (running, below) == (None, None)

    def test_a_crash_loop_of_which_no_end_was_seen_is_one(self) -> None:
        """The kubelet's word and the count suffice."""
        counts = Restarts(replica=WORKER, container="pytorch", pod_uid="u", count=7)

        found = after(0, wait(WaitKind.CRASH_LOOP), restart_counts=(counts,))

        assert found is not None
        assert found.summary == "its containers were restarted 7 times"

    def test_the_wait_that_says_most_is_told_and_the_others_counted(self) -> None:
        """One replica's reason usually is all replicas' reason."""
        stuck = wait(WaitKind.STUCK, reason="RunContainerError", message="device busy")

        found = after(1200, wait(WaitKind.STARTING, MASTER), stuck)

        assert found is not None
        assert found.cause is Cause.CANNOT_START
        assert (
            found.summary
            == f"{WORKER} (rank 1) (and 1 more) did not start within 20 min: RunContainerError: device busy"
        )


class TestWaitingReason:
    def test_a_job_that_runs_or_has_ended_waits_for_nothing(self) -> None:
        """Nothing is said when there is nothing to say."""
        both = Record(running=(MASTER,), finished=(WORKER,), placed=(MASTER, WORKER))

        assert waiting_reason(both, JobStatus(phase=JobPhase.RUNNING), replicas=2) == ""
        assert waiting_reason(Record(), FAILED, replicas=2) == ""

    def test_a_pod_that_is_missing_without_a_word_is_counted(self) -> None:
        """One pod was deleted and is not there again yet."""
        record = Record(running=(MASTER,), placed=(MASTER,))

        assert waiting_reason(record, WAITING, replicas=2) == "1 of 2 placed"

    def test_replicas_with_one_reason_share_it(self) -> None:
        """Seven pods without a GPU are one sentence."""
        waits = tuple(wait(WaitKind.QUEUED, f"w{number}", message="no GPU") for number in range(7))

        assert waiting_reason(Record(waiting=waits), WAITING, replicas=8) == "0 of 8 placed; w0, w1, w2, 4 more: no GPU"

    def test_a_refusal_without_a_name_has_no_name(self) -> None:
        """An admission webhook did not say which pod it refused."""
        record = Record(waiting=(wait(WaitKind.REFUSED, "", message="denied"),))

        assert waiting_reason(record, WAITING, replicas=1) == "0 of 1 placed; not created: denied"

    def test_a_wait_without_any_word_is_a_start(self) -> None:
        """The kubelet may give no reason."""
        record = Record(waiting=(wait(WaitKind.STARTING, reason=""),), placed=(WORKER,))

        assert waiting_reason(record, WAITING, replicas=1) == f"0 of 1 running; {WORKER}: is being started"

    def test_a_crash_loop_says_how_the_last_run_ended(self) -> None:
        """Not the kubelet's back-off, which changes by itself."""
        counts = (Restarts(replica=WORKER, container="pytorch", pod_uid="u", count=1),)
        record = Record(waiting=(wait(WaitKind.CRASH_LOOP),), restart_counts=counts, placed=(WORKER,))

        unseen = waiting_reason(record, WAITING, replicas=1)
        uncounted = waiting_reason(replace(record, restart_counts=()), WAITING, replicas=1)
        seen = waiting_reason(replace(record, terminations=(end(code=3),)), WAITING, replicas=1)

        assert unseen == f"0 of 1 running; {WORKER}: crash loop, 1 restart so far"
        assert uncounted == f"0 of 1 running; {WORKER}: crash loop, 0 restarts so far"
        assert seen == f"0 of 1 running; {WORKER}: exited with code 3; 1 restart so far"
