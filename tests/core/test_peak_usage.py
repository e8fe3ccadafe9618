"""Tests of peak usage: samples of several rounds, pods and readers are combined."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ptjob_provider.core.history.peak_usage import PeakUsage, of_pods, shown, stored_in, to_text, together
from ptjob_provider.core.identity import USAGE_ANNOTATION


def annotated(text: str) -> dict[str, Any]:
    """Return a job with this annotation."""
    return {"metadata": {"annotations": {USAGE_ANNOTATION: text}}}


def test_the_most_of_all_looks_is_the_peak() -> None:
    """A value that was not measured stays unknown."""
    use = PeakUsage().with_sample({"cpu": 0.5, "memory": 10}).with_sample({"cpu": 0.25, "memory": 20})

    assert use == PeakUsage(peak_cpu=0.5, peak_memory=20, samples=2)
    assert use.with_sample({}) == PeakUsage(peak_cpu=0.5, peak_memory=20, samples=3)
    assert PeakUsage().with_sample({"cpu": 0.5}) == PeakUsage(peak_cpu=0.5, peak_memory=None, samples=1)


def test_peaks_of_two_pods_of_a_replica_are_not_added_up() -> None:
    """The pods did not run at the same time; the numbers of their samples are added."""
    first = PeakUsage(peak_cpu=1.0, peak_memory=5, samples=2)
    second = PeakUsage(peak_cpu=0.5, peak_memory=9, samples=1)
    unknown = PeakUsage(peak_cpu=0.5, samples=1)

    found = of_pods([("a", first), ("b", second), ("a", second), ("b", unknown), ("c", unknown), ("c", unknown)])

    assert found == {
        "a": PeakUsage(peak_cpu=1.0, peak_memory=9, samples=3),
        "b": PeakUsage(peak_cpu=0.5, peak_memory=9, samples=2),
        "c": PeakUsage(peak_cpu=0.5, samples=2),
    }


def test_two_observations_of_the_same_pods_are_merged_to_their_maxima() -> None:
    one, other = PeakUsage(peak_memory=5, samples=4), PeakUsage(peak_memory=3, samples=1)

    assert together({"a": one}, {"a": other, "b": other}) == {
        "a": PeakUsage(peak_memory=5, samples=4),
        "b": other,
    }


def test_peak_usage_is_plain_json_that_can_be_read_back() -> None:
    """For the result, and for the job's annotation."""
    uses = {"m": PeakUsage(peak_cpu=1.5, peak_memory=2**30, samples=9), "w": PeakUsage()}

    text = shown(uses, rank0="m")

    assert text == {"replicas": {"m": uses["m"].to_dict()}, "left_out": 0}
    assert json.loads(json.dumps(text)) == text
    assert stored_in(annotated(to_text(uses, rank0="m"))) == {"m": uses["m"]}


def test_nothing_measured_is_shown_as_nothing() -> None:
    assert shown({"m": PeakUsage()}, rank0="m") is None
    assert to_text({}, rank0="m") == ""


def test_of_many_replicas_those_with_the_most_memory_are_named() -> None:
    """And rank 0; the number of omitted replicas is given."""
    uses = {f"w-{n}": PeakUsage(peak_memory=n, samples=1) for n in range(1000)} | {"m": PeakUsage(samples=1)}

    text = shown(uses, rank0="m")

    assert text is not None
    assert (len(text["replicas"]), text["left_out"]) == (64, 937)
    assert list(text["replicas"])[:2] == ["m", "w-999"]


@pytest.mark.parametrize("text", ["", "no json", "[]", '{"m": 3}'])
def test_a_note_that_cannot_be_read_says_nothing(text: str) -> None:
    assert stored_in(annotated(text)) == {}
