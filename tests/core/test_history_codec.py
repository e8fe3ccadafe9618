from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pods import NOW, POD, after, container, ended, look, pod, stamp
from ptjob_provider.core.history import PodHistory, Restarts, Termination, Waiting, WaitKind, from_text, to_text
from ptjob_provider.core.history.codec import MAX_TERMINATIONS, bounded
from rows import each_row
from story import STORIES, read

if TYPE_CHECKING:
    from random import Random


class TestText:
    @each_row("name", STORIES)
    def test_a_record_survives_being_stored(self, name: str) -> None:
        """A second reader gets the same ends, waits and clocks, and observes the current run itself."""
        record = read(name).record

        restored = from_text(to_text(record))

        counts = tuple(one for one in record.restart_counts if one.total or one.settled)
        assert restored == replace(record, placed=(), nodes=(), running=(), finished=(), restart_counts=counts)

    @each_row("name", STORIES)
    def test_a_stored_record_goes_on_where_it_stopped(self, name: str) -> None:
        """A reader that starts from the stored text and observes again has the same history as the first one."""
        story = read(name)

        again = read(name, stored=True)

        assert again.record.terminations == story.record.terminations
        assert again.record.waiting == story.record.waiting
        assert again.record.restarts == story.record.restarts
        assert again.diagnosis == story.diagnosis

    @each_row("text", ["", "[]", "not JSON", '{"terminations": [{"x": 1}]}', '{"queued_since": "noon"}'])
    def test_a_text_that_nobody_can_read_is_an_empty_record(self, text: str) -> None:
        """Somebody edited the annotation: the job continues."""
        assert from_text(text) == PodHistory()

    def test_fields_of_a_later_version_are_skipped(self) -> None:
        text = json.dumps({"version": 2, "returned": "1", "weather": "fine", "moons": ["Io"]})

        assert from_text(text) == PodHistory(returned="1")

    def test_a_long_crash_loop_keeps_its_first_failures_and_its_last(self) -> None:
        record = PodHistory(terminations=tuple(_end(run=run, message="x" * 2048) for run in range(40)))

        text = to_text(record)

        restored = from_text(text)
        assert len(text.encode()) <= 16 * 1024
        assert [one.run for one in restored.terminations[:4]] == [0, 1, 2, 3]
        assert restored.terminations[-1] == record.terminations[-1]

    def test_many_replicas_keep_their_ends_and_lose_their_tails(self) -> None:
        """The list of ends is worth more than the log of each of them."""
        ends = tuple(_end(replica=f"digits-worker-{n}", message="x" * 2048, second=n) for n in range(30))

        restored = from_text(to_text(PodHistory(terminations=ends)))

        assert [one.replica for one in restored.terminations] == [one.replica for one in ends]
        assert restored.terminations[0].message == ends[0].message
        assert restored.terminations[-1].message == ends[-1].message
        assert {len(one.message) for one in restored.terminations[4:-1]} == {0}

    @pytest.mark.parametrize("limit", [12_000, 6000, 2000])
    def test_any_record_is_cut_down_to_its_limit(self, limit: int) -> None:
        """Even a record of large parts only is cut down to its limit, as valid JSON."""
        record = PodHistory(
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
        assert from_text(text).terminations

    def test_a_record_that_cannot_be_made_smaller_is_returned_as_it_is(self) -> None:
        """There is a smallest record; a smaller limit does not loop forever."""
        assert json.loads(to_text(PodHistory(), 1)) == {"version": 1}

    def test_a_record_in_memory_is_bounded_too(self) -> None:
        """A job that crashes for a month does not grow the process that follows it."""
        record = PodHistory()
        for run in range(MAX_TERMINATIONS + 10):
            record = look(record, pod(container(ended(start=run * 20, end=run * 20 + 5), run)))

        assert len(record.terminations) == MAX_TERMINATIONS
        assert record.terminations[0].run == 0
        assert record.terminations[-1].run == MAX_TERMINATIONS + 9

    def test_ends_without_a_time_do_not_take_turns(self) -> None:
        """A pod that a node refused shows no container; with the time of each look it would always be the last."""
        pods = [pod(phase="Failed", name=f"digits-worker-{number}", uid=f"u{number}") for number in range(70)]
        record = look(PodHistory(), *pods)
        assert look(record, *pods, at=60).terminations == record.terminations

        disrupted = pod(phase="Failed", uid="u")
        disrupted["status"]["conditions"] = [{"type": "DisruptionTarget", "lastTransitionTime": stamp(90)}]
        record = look(record, *pods, disrupted, at=120)
        assert record.terminations[-1].ended_at == after(90)
        assert look(record, *pods, disrupted, at=180).terminations == record.terminations

    @given(replicas=st.lists(st.integers(0, 9), min_size=MAX_TERMINATIONS + 1, max_size=150), again=st.randoms())
    def test_the_same_ends_are_kept_when_pods_show_others_again(self, replicas: list[int], again: Random) -> None:
        """Pods show their last ends at each look, in any order; many are of one second."""
        ends = [_end(replica=f"r{replica}", run=run, second=run // 40) for run, replica in enumerate(replicas)]
        record = bounded(PodHistory(terminations=tuple(ends)))
        dropped = [end for end in ends if end not in record.terminations]
        seen = again.sample(dropped, again.randint(0, len(dropped)))

        assert bounded(replace(record, terminations=(*record.terminations, *seen))) == record


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


def test_waits_of_an_older_annotation_begin_with_the_new_follower() -> None:
    """It does not say until when somebody has looked."""
    wait = Waiting(replica="m", kind=WaitKind.STUCK, reason="ErrImagePull", since=NOW - timedelta(hours=5))
    stored = from_text(to_text(PodHistory(waiting=(wait,), queued_since=NOW - timedelta(hours=5))))

    resumed = stored.resumed(NOW)

    assert (resumed.waiting[0].since, resumed.queued_since) == (NOW, NOW)
