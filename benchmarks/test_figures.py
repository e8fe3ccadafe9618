"""The benchmark's own arithmetic."""

from __future__ import annotations

import pytest

from benchmarks import meter, recovery
from benchmarks.results import Results, Target, targets
from benchmarks.waiting import since_seen

METRICS = """\
# HELP apiserver_request_total Counter of apiserver requests.
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",resource="pods",subresource="log",verb="GET"} 12
apiserver_request_total{code="200",resource="pods",subresource="",verb="LIST"} 3
apiserver_request_total{code="500",resource="pods",subresource="log",verb="GET"} 1.5e+01
apiserver_request_total_other{resource="pods",subresource="log"} 1000
process_open_fds 42
"""


@pytest.mark.parametrize(("percent", "expected"), [(50, 5), (90, 9), (99, 10), (100, 10), (0, 1)])
def test_a_percentile_is_one_of_the_values(percent: float, expected: float) -> None:
    """The method is nearest rank: nothing is interpolated, and the 100th percentile is the worst value."""
    assert meter.percentile([10, 9, 8, 7, 6, 5, 4, 3, 2, 1], percent) == expected


def test_an_ending_is_not_compared_with_an_earlier_one_of_the_same_job() -> None:
    """A bare watch whose connection has ended still has the endings of earlier contenders."""
    known, sent = {"a": 11.5, "b": 12.5, "c": 13.5}, {"a": 11.0, "b": 12.0, "c": 13.0}

    assert since_seen(known, {"a": 11.25, "b": 2.0}, sent) == [0.25]


def test_a_metric_is_added_up_over_the_labels_that_are_not_asked_for() -> None:
    """Samples of another subresource, and of a metric whose name only begins alike, are left out."""
    assert meter.total(METRICS, "apiserver_request_total", resource="pods", subresource="log") == 27
    assert meter.total(METRICS, "process_open_fds") == 42


@pytest.mark.parametrize(
    ("reached", "at_least", "verdict"),
    [
        (1, False, "aim"),
        (2, False, "must"),
        (4, False, "missed"),
        (4, True, "aim"),
        (2, True, "must"),
        (1, True, "missed"),
    ],
)
def test_a_target_is_judged_by_the_stricter_limit_that_holds(reached: float, *, at_least: bool, verdict: str) -> None:
    """This also holds for targets of which more is better."""
    must, aim = (2, 3) if at_least else (3, 1)

    assert Target(what="", must=must, aim=aim, reached=reached, at_least=at_least).verdict == verdict


def test_a_target_without_measurements_is_reported_as_not_measured() -> None:
    """An empty run reaches no target and misses none."""
    assert {each.verdict for each in targets(Results(), 100)} == {"not measured"}


def test_a_new_page_of_make_bench_keeps_the_section_of_make_bench_recovery() -> None:
    section = f"{recovery.BEGIN}## Old\n{recovery.END}"
    assert recovery.kept(f"# Page\n\n{section}more\n") == f"\n{section}"
    assert recovery.kept("# Page\n") == ""


def test_a_pod_has_ended_once_its_containers_have_and_a_job_once_it_has_failed() -> None:
    """Events come again when a watch begins anew; the first counts."""
    seen = recovery.Seen()
    pod = {
        "metadata": {"name": "ours-1-x-master-0", "uid": "pod"},
        "status": {"containerStatuses": [{"state": {"running": {}}}]},
    }
    job = {
        "metadata": {"name": "ours-1-x", "uid": "job"},
        "status": {"conditions": [{"type": "Running", "status": "True"}]},
    }
    seen.note(recovery.PODS, "ADDED", pod)
    seen.note(recovery.JOBS, "ADDED", job)
    assert not seen.ended

    pod["status"] = {"containerStatuses": [{"state": {"terminated": {}}}]}
    job["status"] = {"conditions": [{"type": "Failed", "status": "True"}]}
    seen.note(recovery.PODS, "MODIFIED", pod)
    seen.note(recovery.JOBS, "MODIFIED", job)
    first = dict(seen.ended)
    seen.note(recovery.PODS, "DELETED", pod)

    assert (seen.ended, seen.ended.keys()) == (first, {"pod", "job"})
    assert [name for name, _, _ in seen.of(recovery.PODS, "ours-1")] == ["ours-1-x-master-0"]
    assert seen.of(recovery.JOBS, "ours-11") == []
