from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ptjob_provider.core.recorder import (
    ContainerKind,
    Record,
    Restarts,
    Termination,
    Waiting,
    WaitKind,
    from_text,
    observe,
    to_text,
)
from ptjob_provider.core.recorder.text import MAX_TERMINATIONS
from story import STORIES, read

NOW = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)
POD = "digits-worker-0"


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def stamp(seconds: float) -> str:
    return after(seconds).isoformat()


def ended(code: int = 1, *, start: float = 0, end: float = 10, **more: Any) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "startedAt": stamp(start), "finishedAt": stamp(end), **more}}


def pod(*statuses: dict[str, Any], phase: str = "Running", uid: str = "u1", **meta: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": POD, "uid": uid, **meta},
        "status": {"phase": phase, "containerStatuses": list(statuses)},
    }


def container(state: dict[str, Any], restarts: int = 0, *, name: str = "pytorch", **last: Any) -> dict[str, Any]:
    return {"name": name, "restartCount": restarts, "state": state, "lastState": last}


def event(reason: str, message: str, *, seconds: float = 0, name: str = POD, **more: Any) -> dict[str, Any]:
    about = {"involvedObject": {"kind": "Pod", "name": name}}
    return {**about, "reason": reason, "message": message, "lastTimestamp": stamp(seconds), **more}


def look(record: Record, *pods: dict[str, Any], at: float = 0, **more: Any) -> Record:
    return observe(record, pods=pods, now=after(at), **more)


RUNNING: dict[str, Any] = {"running": {"startedAt": stamp(0)}}
CREATING: dict[str, Any] = {"waiting": {"reason": "ContainerCreating"}}
BACK_OFF: dict[str, Any] = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}


class TestTerminations:
    @pytest.mark.parametrize("name", STORIES)
    def test_looking_again_at_the_same_world_changes_nothing(self, name: str) -> None:
        """A termination is recorded once, however often it is seen."""
        story = read(name)

        again = read(name, twice=True)

        assert again.record == story.record

    def test_an_end_outlives_its_pod(self) -> None:
        """What ended stays known after the operator has deleted the pod."""
        record = look(Record(), pod(container(ended(3)), phase="Failed"))

        record = look(record, at=5)

        assert [(one.replica, one.exit_code) for one in record.terminations] == [(POD, 3)]

    def test_only_what_is_new_is_new(self) -> None:
        """A record is worth storing exactly when a container has ended since."""
        first = look(Record(), pod(container(ended(), 0)))
        second = look(first, pod(container(ended(start=20, end=30), 1, **ended())))

        new = second.new_terminations_since(first)

        assert [one.restart_count for one in new] == [1]

    def test_the_end_before_a_running_container_is_the_run_before(self) -> None:
        """The kubelet shows the previous run in lastState; its number is one lower than the present one's."""
        record = look(Record(), pod(container(RUNNING, 2, **ended())))

        assert [one.run for one in record.terminations] == [1]

    def test_the_end_before_a_back_off_is_the_present_run(self) -> None:
        """While a container waits for its next start, its restart count is still that of the run that ended."""
        record = look(Record(), pod(container(BACK_OFF, 2, **ended())))

        assert [one.run for one in record.terminations] == [2]

    def test_the_container_id_tells_two_runs_of_one_second_apart(self) -> None:
        """Instants have whole seconds on a cluster; two runs within one are two ends."""
        first = ended(start=0, end=0, containerID="containerd://aaaaaaaaaaaaaaaa")
        second = ended(start=0, end=0, containerID="containerd://bbbbbbbbbbbbbbbb")

        record = look(look(Record(), pod(container(first))), pod(container(second, 1)))

        assert len(record.terminations) == 2

    def test_runs_are_counted_over_pods_made_anew(self) -> None:
        """With restartPolicy ExitCode every run has its own pod; they are runs 0, 1 and 2 of one replica."""
        record = Record()
        for number in range(3):
            failed = container(ended(137, start=number * 20, end=number * 20 + 10))
            record = look(record, pod(failed, phase="Failed", uid=f"u{number}"))

        assert [one.run for one in record.terminations] == [0, 1, 2]
        assert record.restarts == 2

    def test_a_pod_made_anew_after_a_stop_is_no_restart(self) -> None:
        """A queue that suspends a job stops its pods; that is no crash."""
        leaving = {"deletionTimestamp": stamp(5)}
        record = look(Record(), pod(container(ended(143, end=6)), phase="Failed", **leaving))

        record = look(record, pod(container(RUNNING), uid="u2"))

        assert record.restarts == 0

    @pytest.mark.parametrize(
        ("leaves", "grace", "stopped"),
        [(stamp(30), 30, True), (stamp(45), 30, False), (stamp(5), None, True), (None, None, False)],
    )
    def test_a_container_that_ends_after_its_pods_deletion_was_stopped(
        self, leaves: str | None, grace: int | None, *, stopped: bool
    ) -> None:
        """DeletionTimestamp lies the grace period after the request; an end before the request is a failure."""
        meta = {"deletionTimestamp": leaves, "deletionGracePeriodSeconds": grace}

        record = look(Record(), pod(container(ended(end=10)), phase="Failed", **meta))

        assert record.terminations[0].stopped is stopped

    def test_a_deletion_after_the_end_does_not_make_it_a_stop(self) -> None:
        """The operator deletes failed pods; seen before, their end stays a failure."""
        record = look(Record(), pod(container(ended(end=10)), phase="Failed"))

        record = look(record, pod(container(ended(end=10)), phase="Failed", deletionTimestamp=stamp(5)))

        assert not record.terminations[0].stopped

    def test_a_pod_that_failed_without_a_word_of_its_containers_is_an_end(self) -> None:
        """An evicted pod may have lost its container statuses; its reason is kept with our clock."""
        evicted = pod(phase="Failed")
        evicted["status"] |= {"reason": "Evicted", "message": "The node was low on resource: memory."}

        record = look(Record(), evicted, at=7)

        end = record.terminations[0]
        assert (end.exit_code, end.container, end.ended_at) == (None, "", after(7))
        assert end.disruption == "Evicted: The node was low on resource: memory."

    def test_a_containers_end_takes_the_place_of_the_pods(self) -> None:
        """When the container's status comes after all, the end is told once."""
        record = look(Record(), pod(phase="Failed"))

        record = look(record, pod(container(ended(137)), phase="Failed"))

        assert [one.container for one in record.terminations] == ["pytorch"]

    def test_a_later_pod_supersedes_one_that_ended_as_a_whole(self) -> None:
        """A replica that was evicted and runs again has recovered."""
        record = look(Record(), pod(phase="Failed"))

        record = look(record, pod(container(RUNNING), uid="u2"))

        assert record.is_superseded(record.terminations[0])
        assert record.restarts == 1

    def test_a_reason_that_comes_after_the_end_is_added(self) -> None:
        """The kubelet reports the container first and the eviction of its pod afterwards."""
        record = look(Record(), pod(container(ended(137)), phase="Running"))
        evicted = pod(container(ended(137)), phase="Failed")
        evicted["status"]["conditions"] = [
            {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        ]

        record = look(record, evicted)

        assert [one.disruption for one in record.terminations] == ["PreemptionByScheduler"]

    def test_a_start_in_1970_is_no_start(self) -> None:
        """The runtime writes the epoch for a container that it could not start; it has not run for fifty years."""
        never = ended(128, reason="StartError")
        never["terminated"]["startedAt"] = "1970-01-01T00:00:00Z"

        record = look(Record(), pod(container(never), phase="Failed"))

        assert record.terminations[0].started_at is None
        assert record.first_running_at is None

    def test_a_message_is_bounded_and_is_valid_text(self) -> None:
        """A container may write what it likes: the last 4 KiB are kept, as UTF-8."""
        message = "x" * 5000 + "é\ud800"

        record = look(Record(), pod(container(ended(message=message))))

        kept = record.terminations[0].message
        assert len(kept.encode()) <= 4096
        assert kept.endswith("é?")

    def test_the_first_container_trains_where_none_has_the_name(self) -> None:
        """Other kinds call their training container otherwise."""
        other = container(ended(), name="node")

        record = look(Record(), pod(other, container(RUNNING, name="proxy")))

        assert [one.kind for one in record.terminations] == [ContainerKind.TRAINING]

    def test_seconds_that_a_restart_threw_away_are_lost(self) -> None:
        """Only runs that were followed by another one are lost."""
        record = look(Record(), pod(container(RUNNING, 1, **ended(start=0, end=90))))

        assert record.lost_seconds() == {POD: 90.0}
        assert look(Record(), pod(container(ended()), phase="Failed")).lost_seconds() == {}


class TestCrashLoops:
    def test_a_run_that_lasted_begins_the_count_anew(self) -> None:
        """Five failures over a week are no crash loop."""
        record = look(Record(), pod(container(ended(start=0, end=5))))
        record = look(record, pod(container(ended(start=10, end=15), 1)))
        record = look(record, pod(container(ended(start=20, end=7000), 2)))

        record = look(record, pod(container(RUNNING, 3)))

        counts = record.restarts_of(POD, "pytorch")
        assert counts is not None
        assert (counts.total, counts.in_a_row) == (3, 0)

    def test_a_restart_count_never_falls_inside_a_pod(self) -> None:
        """A stale object from another server does not take a restart back."""
        record = look(Record(), pod(container(RUNNING, 3)))

        record = look(record, pod(container(RUNNING, 2)))

        assert record.restarts == 3


class TestWaiting:
    def test_a_wait_keeps_the_clock_of_its_first_sight(self) -> None:
        """How long a pod waits is told by our clock, from the first time we saw it."""
        record = look(Record(), pod(container(CREATING), phase="Pending"), at=3)

        record = look(record, pod(container(CREATING), phase="Pending"), at=60)

        assert [(one.kind, one.since) for one in record.waiting] == [(WaitKind.STARTING, after(3))]

    def test_starting_and_being_stuck_share_a_clock(self) -> None:
        """An image that cannot be pulled is the same start as before."""
        stuck = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
        record = look(Record(), pod(container(CREATING), phase="Pending"))

        record = look(record, pod(container(stuck), phase="Pending"), at=60)

        assert [(one.kind, one.since) for one in record.waiting] == [(WaitKind.STUCK, NOW)]

    def test_another_kind_of_wait_begins_its_own_clock(self) -> None:
        """Time in a queue never eats the time to start."""
        queued = {"metadata": {"name": POD, "uid": "u1"}, "status": {"phase": "Pending"}}
        record = look(Record(), queued)

        record = look(record, pod(container(CREATING), phase="Pending"), at=60)

        assert [one.since for one in record.waiting] == [after(60)]

    def test_another_pod_of_the_name_begins_its_own_clock(self) -> None:
        """A pod that was made anew has not waited before."""
        record = look(Record(), pod(container(CREATING), phase="Pending"))

        record = look(record, pod(container(CREATING), phase="Pending", uid="u2"), at=60)

        assert [one.since for one in record.waiting] == [after(60)]

    def test_the_reason_of_a_failed_pull_stays_while_the_kubelet_backs_off(self) -> None:
        """ErrImagePull and ImagePullBackOff alternate; the one that says why is kept."""
        pull = {"waiting": {"reason": "ErrImagePull", "message": "denied"}}
        back_off = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}
        record = look(Record(), pod(container(pull), phase="Pending"))

        record = look(record, pod(container(back_off), phase="Pending"), at=60)

        assert [one.message for one in record.waiting] == ["denied"]

    def test_a_pull_in_progress_outlives_its_event(self) -> None:
        """Events expire after an hour; a slow pull is still a pull."""
        creating = pod(container(CREATING), phase="Pending")
        record = look(Record(), creating, events=[event("Pulling", "Pulling image")])

        record = look(record, creating, at=4000)

        assert [one.kind for one in record.waiting] == [WaitKind.PULLING]

    def test_the_newest_event_of_this_pod_counts(self) -> None:
        """Old servers fill lastTimestamp, new ones series or eventTime; other pods' events do not count."""
        events = [
            event("FailedMount", "old", seconds=1),
            event("Pulling", "newest", series={"lastObservedTime": stamp(9)}),
            event("FailedAttachVolume", "middle", lastTimestamp=None, eventTime=stamp(5)),
            event("FailedMount", "other", seconds=20, name="digits-worker-1"),
            event("Unheard", "of", seconds=30),
        ]

        record = look(Record(), pod(container(CREATING), phase="Pending"), events=events)

        assert [one.message for one in record.waiting] == ["newest"]

    def test_a_pulled_image_is_an_ordinary_start(self) -> None:
        """After Pulled nothing is wrong and nothing is pulled."""
        record = look(
            Record(), pod(container(CREATING), phase="Pending"), events=[event("Pulled", "done"), event("x", "y")]
        )

        assert [one.kind for one in record.waiting] == [WaitKind.STARTING]

    @pytest.mark.parametrize("change", [{"phase": "Succeeded"}, {"deletionTimestamp": stamp(0)}])
    def test_a_pod_that_is_over_or_leaving_waits_for_nothing(self, change: dict[str, Any]) -> None:
        """A pod that is being deleted will not run, whatever its containers say."""
        record = look(Record(), pod(container(CREATING), **change))

        assert record.waiting == ()

    def test_a_pod_without_any_status_is_queued(self) -> None:
        """The scheduler has not looked at it yet."""
        record = look(Record(), {"metadata": {"name": POD, "uid": "u1"}})

        assert [(one.kind, one.reason) for one in record.waiting] == [(WaitKind.QUEUED, "Pending")]
        assert record.placed == ()

    def test_unschedulable_texts_are_told_once_without_the_preemption(self) -> None:
        """What the scheduler says of preemption changes often and helps nobody."""
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        text = "0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are available: 3 No victims."
        pods = [
            {"metadata": {"name": f"digits-worker-{n}"}, "status": {"conditions": [{**condition, "message": text}]}}
            for n in range(2)
        ]

        record = look(Record(), *pods)

        assert record.unschedulable == ("0/3 nodes are available: 3 Insufficient cpu.",)

    def test_a_refused_pod_waits_until_it_is_there(self) -> None:
        """The event of a refusal stays for an hour; the pod that was made afterwards proves it old."""
        refusal = event("FailedCreatePod", f'Error creating: pods "{POD}" is forbidden: exceeded quota', name="digits")

        refused = look(Record(), events=[refusal])
        made = look(refused, pod(container(RUNNING)), events=[refusal])

        assert [(one.replica, one.message) for one in refused.waiting] == [(POD, "exceeded quota")]
        assert made.waiting == ()

    def test_a_refusal_without_a_name_counts_while_pods_are_missing(self) -> None:
        """An admission webhook does not say which pod it refused."""
        refusal = event("FailedCreatePod", 'admission webhook "policy" denied the request', name="digits")

        missing = look(Record(), pod(container(RUNNING)), events=[refusal], replicas=2)
        complete = look(Record(), pod(container(RUNNING)), events=[refusal], replicas=1)

        assert [one.kind for one in missing.waiting] == [WaitKind.REFUSED]
        assert complete.waiting == ()

    def test_a_crashed_container_that_is_about_to_start_waits_for_nothing(self) -> None:
        """Between its end and the back-off a failed container is just ended."""
        record = look(Record(), pod(container(ended(1))))

        assert record.waiting == ()
        assert record.finished == (POD,)

    def test_a_native_sidecar_does_not_linger(self) -> None:
        """The kubelet ends native sidecars itself when the training has finished."""
        finished = pod(container(ended(0)))
        finished["spec"] = {
            "containers": [{"name": "pytorch"}],
            "initContainers": [{"name": "proxy", "restartPolicy": "Always"}],
        }
        finished["status"]["initContainerStatuses"] = [container(RUNNING, name="proxy")]

        record = look(Record(), finished)

        assert record.waiting == ()

    def test_what_the_back_end_does_not_apply_is_told_once(self) -> None:
        """A notice stays in the record, so that a second reader tells it too."""
        not_applied = event("NotApplied", "nodeSelector does not apply on this machine", name="digits")

        record = look(look(Record(), events=[not_applied]), events=[not_applied])

        assert record.notices == ("nodeSelector does not apply on this machine",)


class TestClocks:
    def test_the_queue_clock_runs_while_anything_has_no_place(self) -> None:
        """It begins with the first look and stops when every pod has its node."""
        waiting = look(look(Record(), at=1), at=50)

        placed = look(waiting, pod(container(RUNNING)), at=60)

        assert waiting.queued_since == after(1)
        assert placed.queued_since is None

    def test_all_run_when_the_last_replica_has_started(self) -> None:
        """The operator's Running says no more than that rank 0 runs."""
        one = pod(container(RUNNING))
        other = {**one, "metadata": {"name": "digits-master-0", "uid": "m"}}
        late = {"running": {"startedAt": stamp(30)}}
        other_late = {**other, "status": {"phase": "Running", "containerStatuses": [container(late)]}}

        first = look(Record(), one, replicas=2)
        both = look(first, one, other_late, replicas=2)

        assert (first.first_running_at, first.all_running_at) == (NOW, None)
        assert (both.first_running_at, both.all_running_at) == (NOW, after(30))


class TestText:
    @pytest.mark.parametrize("name", STORIES)
    def test_a_record_survives_being_stored(self, name: str) -> None:
        """A second reader gets the same ends, waits and clocks; what runs now it sees for itself."""
        record = read(name).record

        restored = from_text(to_text(record))

        counts = tuple(one for one in record.restart_counts if one.total or one.settled)
        assert restored == replace(record, placed=(), running=(), finished=(), restart_counts=counts)

    @pytest.mark.parametrize("name", STORIES)
    def test_a_stored_record_goes_on_where_it_stopped(self, name: str) -> None:
        """A reader that begins with the stored text and looks again knows what the first one knew."""
        story = read(name)

        again = read(name, stored=True)

        assert again.record.terminations == story.record.terminations
        assert again.record.waiting == story.record.waiting
        assert again.record.restarts == story.record.restarts
        assert again.diagnosis == story.diagnosis

    @pytest.mark.parametrize("text", ["", "[]", "not JSON", '{"terminations": [{"x": 1}]}', '{"queued_since": "noon"}'])
    def test_a_text_that_nobody_can_read_is_an_empty_record(self, text: str) -> None:
        """Somebody edited the annotation: the job goes on."""
        assert from_text(text) == Record()

    def test_fields_of_a_later_version_are_skipped(self) -> None:
        """An older reader takes what it knows."""
        text = json.dumps({"version": 2, "dropped": 1, "weather": "fine", "moons": ["Io"]})

        assert from_text(text) == Record(dropped=1)

    def test_a_long_crash_loop_keeps_its_first_failures_and_its_last(self) -> None:
        """The oldest restarts in between are left out, and counted."""
        record = Record(terminations=tuple(_end(run=run, message="x" * 2048) for run in range(40)))

        text = to_text(record)

        restored = from_text(text)
        assert len(text.encode()) <= 16 * 1024
        assert [one.run for one in restored.terminations[:4]] == [0, 1, 2, 3]
        assert restored.terminations[-1] == record.terminations[-1]
        assert restored.dropped == 40 - len(restored.terminations)

    def test_many_replicas_keep_their_ends_and_lose_their_tails(self) -> None:
        """Who ended and how is worth more than the log of every one of them."""
        ends = tuple(_end(replica=f"digits-worker-{n}", message="x" * 2048, second=n) for n in range(30))

        restored = from_text(to_text(Record(terminations=ends)))

        assert [one.replica for one in restored.terminations] == [one.replica for one in ends]
        assert restored.terminations[0].message == ends[0].message
        assert restored.terminations[-1].message == ends[-1].message
        assert {len(one.message) for one in restored.terminations[4:-1]} == {0, 400}

    @pytest.mark.parametrize("limit", [12_000, 6000, 2000])
    def test_whatever_was_seen_fits(self, limit: int) -> None:
        """Even a record of nothing but large parts is cut down to its limit, in valid JSON."""
        record = Record(
            terminations=tuple(_end(replica=f"r{n}", message="é" * 2000, second=n) for n in range(60)),
            waiting=tuple(
                Waiting(replica=f"r{n}", kind=WaitKind.STUCK, reason="ErrImagePull", message="y" * 2000, since=NOW)
                for n in range(20)
            ),
            restart_counts=tuple(Restarts(replica=f"r{n}", container="c", pod_uid="u", count=2) for n in range(50)),
            notices=tuple(f"{n} does not apply" for n in range(20)),
        )

        text = to_text(record, limit)

        assert len(text.encode()) <= limit
        assert from_text(text).dropped > 0

    def test_a_record_that_cannot_be_made_smaller_is_returned_as_it_is(self) -> None:
        """There is a smallest record; asking for less does not loop for ever."""
        assert json.loads(to_text(Record(), 1)) == {"version": 1}

    def test_a_record_in_memory_is_bounded_too(self) -> None:
        """A job that crashes for a month does not grow the process that watches it."""
        record = Record()
        for run in range(MAX_TERMINATIONS + 10):
            record = look(record, pod(container(ended(start=run * 20, end=run * 20 + 5), run)))

        assert len(record.terminations) == MAX_TERMINATIONS
        assert record.dropped == 10
        assert record.terminations[0].run == 0
        assert record.terminations[-1].run == MAX_TERMINATIONS + 9

    def test_ends_of_different_replicas_are_bounded_as_well(self) -> None:
        """Where nothing was restarted, the oldest that is not among the first failures goes."""
        pods = []
        for number in range(MAX_TERMINATIONS + 3):
            one = pod(container(ended(start=0, end=number)), phase="Failed", uid=f"u{number}")
            pods.append({**one, "metadata": {**one["metadata"], "name": f"digits-worker-{number}"}})

        record = look(Record(), *pods)

        assert (len(record.terminations), record.dropped) == (MAX_TERMINATIONS, 3)


def _end(*, run: int = 0, replica: str = POD, message: str = "", second: int | None = None) -> Termination:
    return Termination(
        replica=replica,
        key=f"{replica}/{run}",
        container="pytorch",
        run=run,
        exit_code=1,
        message=message,
        finished_at=after(run if second is None else second),
    )
