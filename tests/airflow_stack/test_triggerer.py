"""Tests of a triggerer that stops, is killed or freezes: the job continues, and no log line is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_versions import KILLS_REASSIGNED_TRIGGERS
from task_run import TaskRun, runs, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_stack.conftest import Lab


MARK = "── lines since "


def deferred(lab: Lab, name: str) -> TaskRun:
    """Start a deferred job that waits for a file; return once its log has some ticks (one a second)."""
    task = lab.start("defer_0", "wait_for", name)
    task.wait("deferred")
    task.wait_for_line("tick 0003")
    return task


def ticks(task: TaskRun) -> list[str]:
    """Return the numbers of the ticks, in the order of the log."""
    return [line.split()[1] for line in task.lines() if line.startswith("tick ")]


def finish(lab: Lab, task: TaskRun, name: str) -> list[str]:
    """Release the job, wait for success, and return its ticks."""
    lab.release(name)
    assert task.wait() == "success"
    lines = task.lines()
    assert lines.count("rank 0 finished") == 1, lines[-40:]
    return ticks(task)


def test_a_stopped_triggerer_leaves_the_job_alone_and_the_next_one_goes_on_where_it_was(lab: Lab) -> None:
    task = deferred(lab, "restarted")
    ref = task.ref

    lab.stack["triggerer"].stop(grace=60)  # Airflow itself kills triggers that do not end within 30 s
    alive = runs(ref)
    lab.stack["triggerer"].start()
    lab.stack.wait_healthy(["triggerer"])
    seen = len(ticks(task))
    until(lambda: len(ticks(task)) > seen + 1, what=task.text)

    assert alive
    assert task.state == "deferred"
    found = finish(lab, task, "restarted")
    assert found == [f"{number:04d}" for number in range(len(found))]
    assert sum(line.startswith(MARK) for line in task.lines()) == 1


def test_after_a_killed_triggerer_no_line_is_missing_and_one_says_since_when_they_may_repeat(lab: Lab) -> None:
    """SIGKILL loses the latest log position; a new triggerer repeats lines after the stored one, and marks them."""
    task = deferred(lab, "bereaved")
    ref = task.ref

    lab.stack["triggerer"].kill()
    lab.stack["triggerer"].start()
    lab.stack.wait_healthy(["triggerer"])
    task.wait_for_line(MARK)

    assert runs(ref)
    found = finish(lab, task, "bereaved")
    assert sorted(set(found)) == [f"{number:04d}" for number in range(len(set(found)))]
    lines = task.lines()
    after = lines[next(i for i, line in enumerate(lines) if line.startswith(MARK)) :]
    later = [line.split()[1] for line in after if line.startswith("tick ")]
    assert later
    assert len(later) == len(set(later))


@pytest.fixture
def _one_triggerer(lab: Lab) -> Iterator[None]:
    yield
    second = lab.stack.components.pop("triggerer-2", None)
    if second is not None:
        second.stop()
    lab.stack["triggerer"].thaw()


@pytest.mark.usefixtures("_one_triggerer")
def test_a_triggerer_that_was_frozen_and_replaced_does_not_touch_the_job_when_it_wakes(lab: Lab) -> None:
    """Airflow cancels the triggers of the resumed triggerer; a trigger keeps the job, as its task is still deferred.

    It may repeat lines before it is cancelled.
    """
    task = deferred(lab, "frozen")
    ref = task.ref
    lab.stack["triggerer"].freeze()
    lab.stack.add("triggerer", "triggerer-2")
    seen = len(ticks(task))
    until(lambda: len(ticks(task)) > seen + 1, what=task.text)

    lab.stack["triggerer"].thaw()
    heard = f"{ref} is kept: its task is deferred" if KILLS_REASSIGNED_TRIGGERS else "trigger completed"
    until(lambda: heard in task.text(), what=task.text)

    assert runs(ref)
    assert task.state == "deferred"
    lab.release("frozen")
    assert task.wait() == "success"
    found = sorted(set(ticks(task)))
    assert found == [f"{number:04d}" for number in range(len(found))]
    assert "rank 0 finished" in task.lines()
    assert any(line.startswith(MARK) for line in task.lines())
