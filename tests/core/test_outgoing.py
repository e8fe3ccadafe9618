"""Tests of values that leave the process."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from http import HTTPStatus
from typing import Any

import pytest
from hypothesis import example, given

from core.odd_values import NUMBERS, ODD, OTHERS, TEXTS, nested, strict
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.outgoing import EXACT_AS_FLOAT, MAX_DEPTH, MAX_SIZE, check_texts, outgoing, readable
from ptjob_provider.core.spec import TrainingJob
from ptjob_provider.core.status import JobPhase
from rows import each_row


@given(ODD)
@example([*NUMBERS, *TEXTS, *OTHERS])
def test_every_value_becomes_strict_json_of_utf_8(value: Any) -> None:
    """What has left once is not changed again."""
    messages: list[str] = []

    left = outgoing(value)

    text = json.dumps(left, ensure_ascii=False, allow_nan=False).encode()
    assert json.loads(text, parse_constant=strict) == left
    assert b"\0" not in text
    assert "\\u0000" not in json.dumps(left).replace("\\\\", "")
    assert outgoing(left, messages.append) == left
    assert messages == []


@each_row(
    ("value", "left", "report"),
    [
        (2**64 - 1, 2**64 - 1, None),
        (2**64, "18446744073709551616", "the value (an integer beyond 64 bits)"),
        (-(2**63), -(2**63), None),
        ({"a": {"b": -(2**63) - 1}}, {"a": {"b": "-9223372036854775809"}}, "a.b (an integer beyond 64 bits)"),
        ([math.nan, 0.5], ["NaN", 0.5], "[0] (no finite number)"),
        ((math.inf, -math.inf), ["Infinity", "-Infinity"], "[0] (no finite number), [1] (no finite number)"),
        ({"x": "a\0\ud800"}, {"x": "a\ufffd\ufffd"}, "x (NUL or half of a surrogate pair)"),
        ({"x\0": 1}, {"x\ufffd": 1}, "a key (NUL or half of a surrogate pair)"),
        ({1: "a", None: True}, {"1": "a", "None": True}, None),
        ({1: "a", "1": "b"}, {"1": "a"}, "1 (left out: another key has become the same text)"),
        ([date(2026, 11, 27), datetime(2026, 11, 27, tzinfo=UTC)], ["2026-11-27", "2026-11-27 00:00:00+00:00"], None),
        ([JobPhase.RUNNING, HTTPStatus.OK, "\U0001f600"], ["Running", 200, "\U0001f600"], None),
        ([2**64] * 5, [str(2**64)] * 5, "[0] (an integer beyond 64 bits), [1] (an integer beyond 64 bits), [2] (an"),
    ],
)
def test_a_replaced_value_is_reported_by_its_key(value: Any, left: Any, report: str | None) -> None:
    heard: list[str] = []

    assert outgoing(value, heard.append) == left
    assert str(outgoing(value)) == str(left)
    assert bool(heard) == bool(report)
    assert (report or "") in "".join(heard)


def test_integers_that_a_float_cannot_keep_are_texts_where_readers_have_only_floats() -> None:
    assert outgoing([2**53 - 1, 2**53, -(2**53)], largest=EXACT_AS_FLOAT) == [2**53 - 1, str(2**53), str(-(2**53))]


def test_depth_and_size_are_bounded() -> None:
    """Other parts of a value are kept, and what a person prints is not cut."""
    messages: list[str] = []
    wide = {f"loss{number}": 0.5 for number in range(200_000)}

    left = outgoing({"deep": nested(2000), "long": "x" * 10_000_000, "wide": wide, "last": 1}, messages.append)
    levels, part = 0, left["deep"]
    while part:
        levels, part = levels + 1, part[0]

    assert levels == MAX_DEPTH - 1
    assert (left["last"], set(left["long"])) == (1, {"x"})
    assert len(json.dumps(left)) < 2 * MAX_SIZE
    assert "deep[0][0]" in messages[0]
    assert "of 10,000,000 characters" in messages[0]
    assert outgoing({"long": "x" * 10_000_000}, bounded=False) == {"long": "x" * 10_000_000}
    assert len(json.dumps(outgoing([["a" * 1000] * 1000] * 1000))) < 2 * MAX_SIZE
    assert len(json.dumps(outgoing(broad(9)))) < 2 * MAX_SIZE
    assert outgoing(10**5000) == "1" + "0" * 5000


def test_values_after_the_size_limit_are_cut_but_keep_their_keys() -> None:
    """An event is read by its keys: only texts, lists and maps are cut."""
    messages: list[str] = []
    texts = [f"{number:06d}" + "x" * 60_000 for number in range(1000)]

    left = outgoing({"texts": texts, "outcome": "Succeeded", "log": "y" * 100, "cursor": {"a": 1}}, messages.append)

    assert (left["outcome"], left["log"], left["cursor"]) == ("Succeeded", "y" * 64, {})
    assert len(json.dumps(left)) < 2 * MAX_SIZE
    assert "texts[18] (the first 64 of 60,006 characters)" in messages[0]
    assert "and 46 more" in messages[0]


def broad(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value] * 32
    return value


@each_row(
    ("text", "wanted"),
    [("a\0\ud800\udc00b", "a\ufffd\U00010000b"), ("\udc80", "\ufffd"), ("\ufeffä", "\ufeffä"), (None, ""), (7, "7")],
)
def test_a_text_is_made_readable(text: object, wanted: str) -> None:
    assert readable(text) == wanted


@each_row(
    ("fields", "field"),
    [
        ({"env": {"SEED": "a\0"}}, "env.SEED"),
        ({"env": [{"name": "SEED", "value": "\ud800"}]}, "env[0].value"),
        ({"args": ["--name", "\udfff"]}, "args[1]"),
        ({"annotations": {"a\0": "b"}}, "annotations: a key"),
        ({"master": {"env": {"A": "\0"}}}, "master.env.A"),
        (
            {"manifest": 'apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: "a\\0"}'},
            "manifest.metadata.name",
        ),
        ({"pod_template": '{"spec": {"nodeName": "\\ud800"}}'}, "pod_template.spec.nodeName"),
        ({"pod_template": '{"spec": {"\\ud800": 1}}'}, "pod_template.spec: a key"),
    ],
)
def test_a_users_text_that_cannot_be_sent_is_refused_by_its_name(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidSpec) as error:
        TrainingJob.parse(**{"name": "a", "image": "b", **fields})

    assert str(error.value).startswith(f"{field}: NUL or half of a surrogate pair")


@each_row(("number", "is_allowed"), [(2**63 - 1, True), (2**63, False), (-(2**63) - 1, False)])
def test_a_manifests_integer_has_64_bits(number: int, is_allowed: bool) -> None:  # noqa: FBT001 - a row
    template = {"spec": {"activeDeadlineSeconds": number}}
    if is_allowed:
        assert TrainingJob.parse(name="a", image="b", pod_template=template).pod_template is not None
        return
    with pytest.raises(InvalidSpec, match=r"pod_template.spec.activeDeadlineSeconds: -?\d+ is not allowed"):
        TrainingJob.parse(name="a", image="b", pod_template=template)


def test_a_users_value_of_thousands_of_levels_is_refused_by_its_name() -> None:
    with pytest.raises(InvalidSpec, match=r"affinity.*more than 60 levels deep"):
        check_texts("affinity", nested(2000))


def test_an_argument_that_is_a_number_of_any_size_travels_as_its_text() -> None:
    assert TrainingJob.parse(name="a", image="b", args=["--seed", 2**70]).args == ("--seed", str(2**70))
