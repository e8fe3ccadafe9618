from __future__ import annotations

from typing import Any, ClassVar

import pytest

from pods import BACK_OFF, NOW, POD, RUNNING, after, container, ended, event, look, pod, stamp
from ptjob_provider.core.history import ContainerKind, PodHistory, from_text, to_text
from rows import each_row
from story import STORIES, read


class TestTerminations:
    @each_row("name", STORIES)
    def test_looking_again_at_the_same_world_changes_nothing(self, name: str) -> None:
        story = read(name)

        again = read(name, twice=True)

        assert again.record == story.record

    def test_the_end_before_a_back_off_is_the_present_run(self) -> None:
        """While a container waits for its next start, its restart count is still that of the run that ended."""
        record = look(PodHistory(), pod(container(BACK_OFF, 2, **ended())))

        assert [one.run for one in record.terminations] == [2]

    def test_the_container_id_tells_two_runs_of_one_second_apart(self) -> None:
        """A cluster's timestamps have whole seconds; two runs within one second are two ends."""
        first = ended(start=0, end=0, containerID="containerd://aaaaaaaaaaaaaaaa")
        second = ended(start=0, end=0, containerID="containerd://bbbbbbbbbbbbbbbb")

        record = look(look(PodHistory(), pod(container(first))), pod(container(second, 1)))

        assert len(record.terminations) == 2

    def test_runs_are_counted_over_pods_made_anew(self) -> None:
        """With restartPolicy ExitCode each run has its own pod; they are runs 0, 1 and 2 of one replica."""
        record = PodHistory()
        for number in range(3):
            failed = container(ended(137, start=number * 20, end=number * 20 + 10))
            record = look(record, pod(failed, phase="Failed", uid=f"u{number}"))

        assert [one.run for one in record.terminations] == [0, 1, 2]
        assert record.restarts == 2

    def test_a_pod_made_anew_after_a_stop_is_no_restart(self) -> None:
        """A queue that suspends a job stops its pods; that is not a crash."""
        leaving = {"deletionTimestamp": stamp(5)}
        record = look(PodHistory(), pod(container(ended(143, end=6)), phase="Failed", **leaving))

        record = look(record, pod(container(RUNNING), uid="u2"))

        assert record.restarts == 0

    @pytest.mark.parametrize(
        ("leaves", "grace", "stopped"),
        [(stamp(30), 30, True), (stamp(45), 30, False), (stamp(5), None, True), (None, None, False)],
    )
    def test_a_container_that_ends_after_its_pods_deletion_was_stopped(
        self, leaves: str | None, grace: int | None, *, stopped: bool
    ) -> None:
        """The deletionTimestamp is the request plus the grace period; an end before the request is a failure."""
        meta = {"deletionTimestamp": leaves, "deletionGracePeriodSeconds": grace}

        record = look(PodHistory(), pod(container(ended(end=10)), phase="Failed", **meta))

        assert record.terminations[0].stopped is stopped

    def test_a_deletion_after_the_end_does_not_make_it_a_stop(self) -> None:
        """The operator deletes failed pods; an end that was observed before stays a failure."""
        record = look(PodHistory(), pod(container(ended(end=10)), phase="Failed"))

        record = look(record, pod(container(ended(end=10)), phase="Failed", deletionTimestamp=stamp(5)))

        assert not record.terminations[0].stopped

    def test_a_containers_end_takes_the_place_of_the_pods(self) -> None:
        record = look(PodHistory(), pod(phase="Failed"))

        record = look(record, pod(container(ended(137)), phase="Failed"))

        assert [one.container for one in record.terminations] == ["pytorch"]

    def test_a_pod_that_failed_without_a_word_of_its_containers_is_an_end(self) -> None:
        """An evicted pod may have lost its container statuses; its reason is kept with the local clock."""
        evicted = pod(phase="Failed")
        evicted["status"] |= {"reason": "Evicted", "message": "The node was low on resource: memory."}

        record = look(PodHistory(), evicted, at=7)

        end = record.terminations[0]
        assert (end.exit_code, end.container, end.ended_at) == (None, "", after(7))
        assert end.disruption == "Evicted: The node was low on resource: memory."

    def test_a_reason_that_comes_after_the_end_is_added(self) -> None:
        """The kubelet reports the container first and the eviction of its pod afterwards."""
        record = look(PodHistory(), pod(container(ended(137)), phase="Running"))
        evicted = pod(container(ended(137)), phase="Failed")
        evicted["status"]["conditions"] = [
            {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        ]

        record = look(record, evicted)

        assert [one.disruption for one in record.terminations] == ["PreemptionByScheduler"]

    def test_a_message_is_bounded_and_is_valid_text(self) -> None:
        """The last 4 KiB are kept, as UTF-8."""
        message = "x" * 5000 + "é\ud800"

        record = look(PodHistory(), pod(container(ended(message=message))))

        kept = record.terminations[0].message
        assert len(kept.encode()) <= 4096
        assert kept.endswith("é\ufffd")

    def test_the_first_container_trains_where_none_has_the_name(self) -> None:
        """Other job kinds name their training container differently."""
        other = container(ended(), name="node")

        record = look(PodHistory(), pod(other, container(RUNNING, name="proxy")))

        assert [one.kind for one in record.terminations] == [ContainerKind.TRAINING]

    def test_seconds_that_a_restart_threw_away_are_lost(self) -> None:
        """Only runs that were followed by another run count."""
        record = look(PodHistory(), pod(container(RUNNING, 1, **ended(start=0, end=90))))

        assert record.lost_seconds() == {POD: 90.0}
        assert look(PodHistory(), pod(container(ended()), phase="Failed")).lost_seconds() == {}

    def test_a_replaced_pod_that_lingers_does_not_count_the_new_ones_restarts_again(self) -> None:
        old = pod(container(ended(0)), phase="Succeeded", uid="u1", creationTimestamp=stamp(0))
        new = pod(container(RUNNING, 1, **ended(1, start=20, end=30)), uid="u2", creationTimestamp=stamp(20))
        record = look(PodHistory(), old)

        for seconds in (40, 50):
            record = look(record, old, new, at=seconds)

        assert record.restarts == 1


def test_an_event_about_another_containers_end_is_about_a_sidecar() -> None:
    """The operator emits an event for each container that failed."""
    told = event("Error", f"Error pod {POD} container proxy exitCode: 3 terminated message: no route", name="digits")

    record = look(PodHistory(), events=[told])

    assert [one.kind for one in record.terminations] == [ContainerKind.SIDECAR]


class TestSilentEnds:
    def test_of_a_silent_failure_the_log_is_kept_until_the_run_after_the_next_begins(self) -> None:
        """A node keeps the log of a pod's newest run and of the run before it."""
        record = look(PodHistory(), pod(container(ended())))
        again = look(record, pod(container(RUNNING, 1, **ended())))
        twice = look(again, pod(container(RUNNING, 2, **ended(start=20, end=30))))
        anew = look(twice, pod(container(RUNNING), uid="u2"))

        kept = [[one.restart_count for one in each.silent_ends()] for each in (record, again, twice, anew)]
        assert kept == [[0], [0], [1], []]

    @pytest.mark.parametrize(
        "state",
        [ended(0), ended(message="epoch 1"), ended(start=-NOW.timestamp())],
        ids=["ended well", "left a message", "never started"],
    )
    def test_an_end_that_was_well_or_left_a_message_is_not_silent(self, state: dict[str, Any]) -> None:
        assert look(PodHistory(), pod(container(state), phase="Failed")).silent_ends() == ()

    def test_the_first_of_the_silent_ends_comes_first(self) -> None:
        record = look(PodHistory(), pod(container(ended(end=30), 1, **ended(end=10))))

        assert [one.restart_count for one in record.silent_ends()] == [0, 1]

    def test_the_log_of_an_end_without_a_message_becomes_its_message(self) -> None:
        """A message in the pod's status takes precedence; a log without a known end is ignored."""
        record = look(PodHistory(), pod(container(ended(), 1, **ended(message="epoch 1", start=-30, end=-20))))
        keys = [one.key for one in record.terminations]

        heard = record.with_messages({**dict.fromkeys(keys, "ValueError: x"), "another": "y"})

        assert [one.message for one in heard.terminations] == ["epoch 1", "ValueError: x"]
        assert heard.silent_ends() == ()
        assert look(heard, pod(container(ended(), 1))).terminations == heard.terminations


class TestCrashLoops:
    def test_a_run_that_lasted_begins_the_count_anew(self) -> None:
        """Five failures within a week are not a crash loop."""
        record = look(PodHistory(), pod(container(ended(start=0, end=5))))
        record = look(record, pod(container(ended(start=10, end=15), 1)))
        record = look(record, pod(container(ended(start=20, end=7000), 2)))

        record = look(record, pod(container(RUNNING, 3)))

        counts = record.restarts_of(POD, "pytorch")
        assert counts is not None
        assert (counts.total, counts.in_a_row) == (3, 0)

    def test_a_restart_count_never_falls_inside_a_pod(self) -> None:
        """A stale object from another API server does not lower the count."""
        record = look(PodHistory(), pod(container(RUNNING, 3)))

        record = look(record, pod(container(RUNNING, 2)))

        assert record.restarts == 3


class TestRemovals:
    MADE = event("SuccessfulCreatePod", f"Created pod: {POD}", name="digits")
    DELETED = event("SuccessfulDeletePod", f"Deleted pod: {POD}", name="digits")
    OTHER = event("SuccessfulDeletePod", "Deleted pod: digits-master-0", name="digits")
    LEAVING: ClassVar[dict[str, Any]] = {"deletionTimestamp": stamp(40), "deletionGracePeriodSeconds": 30}
    LEAVES = pod(container(RUNNING), **LEAVING)
    KILLED = pod(container(ended(137, end=40)), phase="Failed", **LEAVING)
    ENDED = pod(container(ended(137, end=8)), phase="Failed", **LEAVING)
    SOON = pod(container(RUNNING), deletionTimestamp=stamp(12))
    ANEW = pod(container(RUNNING), uid="u2")

    @each_row(
        ("what", "looks", "removed_at"),
        [
            ("somebody else deletes it", [([LEAVES], [])], 10),
            ("the operator deletes it, and tells so later", [([LEAVES], []), ([LEAVES], [DELETED])], None),
            ("it is killed before the next look, and the operator deletes another one", [([KILLED], [OTHER])], 10),
            ("it is deleted after its end", [([ENDED], [])], None),
            ("it is gone at once, without a grace period", [([], [])], 30),
            ("the kubelet writes the end over the instant of the deletion", [([LEAVES], []), ([SOON], [])], 10),
            ("it is made anew", [([LEAVES], []), ([LEAVES, ANEW], [])], None),
        ],
    )
    def test_a_running_pod_that_the_operator_has_not_deleted_was_removed(
        self, what: str, looks: list[tuple[list[Any], list[Any]]], removed_at: int | None
    ) -> None:
        """The operator emits an event for each pod that it deletes; without one, somebody else deleted the pod."""
        record = look(PodHistory(), pod(container(RUNNING)), events=[self.MADE])

        for pods, events in looks:
            record = look(record, *pods, events=events, at=30)

        expected = [] if removed_at is None else [(POD, "u1", after(removed_at))]
        assert [(one.replica, one.pod_uid, one.requested_at) for one in record.removals] == expected, what

    def test_a_missing_event_proves_no_removal_if_no_events_arrive(self) -> None:
        """The local back-end has no such events, and a Role may not allow reading them."""
        assert look(PodHistory(), self.LEAVES).removals == ()

    def test_a_pod_that_was_seen_leaving_was_stopped(self) -> None:
        """The final state of a pod has neither the grace period nor the time of the deletion request."""
        record = look(PodHistory(), self.LEAVES)

        record = look(record, pod(container(ended(1, end=10)), phase="Failed", deletionTimestamp=stamp(10)))

        assert record.terminations[0].stopped


class TestRevisions:
    @staticmethod
    def fetched(name: str, message: str | None) -> dict[str, Any]:
        words = {} if message is None else {"message": message}
        made = pod(container(RUNNING), name=name)
        made["status"]["initContainerStatuses"] = [container(ended(0, **words), name="init-code")]
        return made

    def test_each_revision_is_kept(self) -> None:
        """Also after the pods are gone, and however often they are observed."""
        pods = [self.fetched(name, f'{{"git_revision": "{sha}"}}') for name, sha in (("w-1", "b"), ("m-0", "a"))]
        record = look(look(PodHistory(), *pods), *pods, self.fetched("w-0", '{"git_revision": "b"}'))

        gone = look(record, at=5)

        assert gone.revisions == ("a", "b")
        assert from_text(to_text(gone)).revisions == gone.revisions
        assert [text for text in gone.notices if "different commits" in text] == list(gone.notices)
        assert len(gone.notices) == 1
        assert look(PodHistory(), pods[0]).notices == ()

    @each_row("message", [None, "", "the end of a log", "[]", "{}"])
    def test_an_image_without_a_revision_leaves_the_revision_unknown(self, message: str | None) -> None:
        record = look(PodHistory(), self.fetched("m-0", message))

        assert record.revisions == ()


def test_a_return_value_that_the_kubelet_has_cut_is_announced_once() -> None:
    """A pod's containers share 12 KiB for their messages: with more than three, a value of 4 KiB does not fit."""
    whole = '{"ptjob_return_value":"abc"}'
    seen = pod(container(ended(0, message=whole[:-4])))

    record = look(look(PodHistory(), seen), seen)

    assert [text.partition(":")[0] for text in record.notices] == ["the function's return value is lost"]
    assert record.returned == ""
    kept = look(PodHistory(), pod(container(ended(0, message=whole))))
    assert (kept.returned, kept.notices) == ('"abc"', ())
