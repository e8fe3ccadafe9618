"""Tests of reading the kubelet's log stream as lines with positions."""

from __future__ import annotations

import pytest

from ptjob_provider.core.kubernetes.logs.parse import LogReader, NodeRefused
from ptjob_provider.core.kubernetes.logs.runs import Run
from ptjob_provider.core.logs import MAX_PIECE

RUN = Run(pod_uid="pod", restart_count=2, started_at="2026-11-20T10:00:00Z", ended=False)
T1, T2 = b"2026-11-20T10:00:01.5Z", b"2026-11-20T10:00:02Z"


def test_a_line_has_its_timestamp_and_place() -> None:
    reader = LogReader(RUN, None)

    lines = [line for chunk in (T1[:9], T1[9:] + b" one\n" + T2, b" two\n") for line in reader.feed(chunk)]

    assert [(line.text, line.timestamp) for line in lines] == [("one", T1.decode()), ("two", T2.decode())]
    assert {(line.cursor.pod_uid, line.cursor.restart_count) for line in lines} == {("pod", 2)}


def test_pieces_of_a_long_line_have_its_timestamp() -> None:
    """Only the first piece begins with a timestamp; the next line has its own."""
    reader = LogReader(RUN, None)

    lines = list(reader.feed(T1 + b" " + MAX_PIECE * b"x" + b"end\n" + T2 + b" next\n"))

    assert [line.timestamp for line in lines] == [T1.decode(), T1.decode(), T2.decode()]
    assert "".join(line.text for line in lines[:2]) == MAX_PIECE * "x" + "end"


def test_a_line_without_a_timestamp_has_the_one_before_it() -> None:
    """It may come from a gateway and is not dropped."""
    reader = LogReader(RUN, None)

    lines = list(reader.feed(b"what is this\n" + T1 + b" one\nand this\n"))

    assert [line.text for line in lines] == ["what is this", "one", "and this"]
    assert [line.timestamp for line in lines] == [RUN.started_at, T1.decode(), T1.decode()]


def test_an_unfinished_line_is_kept_and_an_error_of_the_kubelet_is_raised() -> None:
    """The kubelet reports a failed read inside the log stream."""
    cut, refused = LogReader(RUN, None), LogReader(RUN, None)
    list(cut.feed(T1 + b" last words"))
    list(refused.feed(T1 + b" one\nunable to retrieve container logs for containerd://1a2b"))

    assert [line.text for line in cut.finish()] == ["last words"]
    with pytest.raises(NodeRefused, match="unable to retrieve container logs"):
        list(refused.finish())
