"""Tests of arrival annotations on a claim: their batches and their errors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ptjob_provider.retraining.notes import NOTE, noted
from rows import each_row

WHOLE = {"path": "incoming/1", "id": "a", "files": 3, "bytes": 1234, "modified": "2026-11-22T03:00:00Z"}


def read(value: Any, *, claim: str = "uid-1") -> list[Any]:
    """Return the batches of one valid annotation."""
    text = value if isinstance(value, str) else json.dumps(value)
    batches, wrong = noted({NOTE: text}, note=NOTE, claim=claim)
    assert wrong == {}
    return batches


@each_row(
    "value",
    [
        "incoming/1",
        "  incoming/1/\n",
        "./incoming//1",
        {"path": "incoming/1"},
        {"batches": [{"path": "incoming/1"}]},
        {"batches": [{"path": "incoming/1"}, {"path": "incoming/1/"}]},
    ],
)
def test_a_path_is_a_batch_however_it_is_written(value: Any) -> None:
    (batch,) = read(value)
    (plain,) = read("incoming/1")

    assert batch == plain
    assert batch.to_dict("pvc://digits")["uri"] == "pvc://digits/incoming/1"
    assert batch.id.startswith("incoming/1@")
    assert len(batch.id) == len("incoming/1@") + 12


def test_the_note_of_a_batch_becomes_its_description() -> None:
    (batch,) = read(WHOLE)

    described = batch.to_dict("pvc://digits")
    assert described == {
        "id": batch.id, "uri": "pvc://digits/incoming/1", "files": 3, "bytes": 1234, "modified": WHOLE["modified"],
    }  # fmt: skip


@pytest.mark.parametrize("change", [{"id": "b"}, {"files": 4}, {"bytes": 1}, {"modified": "2026-11-22T04:00:00Z"}])
def test_a_batch_that_was_written_again_has_another_id(change: dict[str, Any]) -> None:
    """Each of these fields tells two versions of the same path apart."""
    (before,), (after,) = read(WHOLE), read(WHOLE | change)

    assert before.id != after.id
    assert before.name == after.name
    assert (before.key == after.key) is ("id" not in change)


def test_a_claim_that_was_made_anew_has_new_batches() -> None:
    """A new volume contains other data, even if its folders have the same names."""
    (before,), (after,) = read("1"), read("1", claim="uid-2")

    assert before.key != after.key
    assert before.id != after.id


def test_every_note_counts_in_the_order_of_the_names() -> None:
    """The annotation itself and those that extend its name with a dot count; other annotations are ignored."""
    others = {"ptjob.dev/arrived-not": "x", "ptjob.dev/arrive": "x", "volume.kubernetes.io/selected-node": "n"}
    notes = {f"{NOTE}.2": "b", f"{NOTE}.10": "c", NOTE: "a"}

    batches, wrong = noted({**others, **notes}, note=NOTE, claim="")

    assert [batch.name for batch in batches] == ["a", "c", "b"]
    assert wrong == {}


WRONG = {
    "": "path below the claim",
    "/incoming/1": "path below the claim",
    "incoming/../../1": "path below the claim",
    "a\x07b": "path below the claim",
    "b" * 488: "of 1 to 487 characters",
    "{": "it is no JSON",
    "[" * 50_000: "too many brackets within each other",
    "[]": "a path below the claim, such as",
    "{}": "a path below the claim, such as",
    '{"batches": {}}': "a path below the claim, such as",
    '{"batches": [], "path": "1"}': "a path below the claim, such as",
    '{"batches": ["1"]}': "a path below the claim, such as",
    '{"batches": [{"path": "1"}, {"path": ".."}]}': "path below the claim",  # a part would look complete
    '{"path": 1}': "path below the claim",
    '{"path": "1", "size": 1}': "allowed: path, id, files, bytes, modified",
    '{"path": "1", "id": 1}': "its id: 1 is not allowed; allowed: a printable text",
    '{"path": "1", "modified": "2026-11-22T03:00:00+00:00, or a day later"}': "of 0 to 40 characters",
    '{"path": "1", "files": -1}': "its files: -1 is not allowed; allowed: a whole number from 0",
}


@each_row(("text", "said"), WRONG.items())
def test_a_wrong_note_is_named_with_what_is_allowed(text: str, said: str) -> None:
    name = f"{NOTE}.wrong"

    batches, wrong = noted({name: text, NOTE: "incoming/1"}, note=NOTE, claim="")

    assert [batch.name for batch in batches] == ["incoming/1"]
    assert list(wrong) == [name]
    assert wrong[name].startswith("its ")
    assert said in wrong[name]
