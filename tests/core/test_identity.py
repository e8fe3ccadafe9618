"""Tests of names, labels and ownership of the attempts of a task."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.identity import (
    MAX_NAME,
    Instance,
    JobRef,
    Owner,
    attempt_of,
    check_name,
    is_owned_by,
    label_value,
    object_name,
    owner_annotation,
    owner_in,
    owner_key,
    owner_labels,
    owner_selector,
    spec_hash,
    stem_of,
)
from rows import each_row

IDS = {"dag_id": "digits", "task_id": "train", "run_id": "scheduled__2026-11-20T00:00:00+00:00", "map_index": "-1"}
OWNER = Owner(instance="prod", ids=IDS, labels={"try_number": "2"})
OTHERS = [
    Owner(instance="staging", ids=IDS, labels={}),
    Owner(instance="prod", ids=IDS | {"run_id": "manual__1"}, labels={}),
    Owner(instance="prod", ids=IDS | {"map_index": "0"}, labels={}),
]


def obj(annotation: str | None, **labels: str) -> dict[str, object]:
    annotations = {"ptjob-provider/owner": annotation} if annotation is not None else None
    return {"metadata": {"annotations": annotations, "labels": labels}}


def test_a_name_is_that_of_one_attempt_of_one_task_instance() -> None:
    """A create can be repeated, because the name is not random; installations, runs and mapped tasks share none."""
    twin = Owner(instance="prod", ids=dict(reversed(IDS.items())), labels={"try_number": "3"})
    names = {object_name("digits", owner, attempt) for owner in (OWNER, twin, *OTHERS) for attempt in (1, 2)}

    assert object_name("digits", OWNER, 1) == object_name("digits", twin, 1)
    assert len(names) == 2 * (1 + len(OTHERS))


def test_a_name_ends_in_48_bits_of_hash() -> None:
    """For 70,000 jobs with one stem, the probability of a collision is 1 in 100,000."""
    assert re.fullmatch(r"digits-[0-9a-f]{12}", object_name("digits", OWNER, 1))


@given(st.from_regex(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True), st.integers(min_value=1, max_value=10**6))
@example("d" * 63, 1)
def test_every_name_leaves_room_for_the_names_of_pods_and_services(stem: str, attempt: int) -> None:
    """For every stem, the name is a DNS-1035 label of at most 49 characters."""
    name = object_name(stem, OWNER, attempt)

    assert len(name) <= 49
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name)


@each_row("name", ["", "1digits", "Digits", "digits_", "digits-", "d" * 64])
def test_a_name_that_the_webhook_would_refuse_is_refused_before(name: str) -> None:
    with pytest.raises(InvalidSpec, match=r"name: .* is not allowed; .*DNS-1035"):
        check_name(name)


def test_labels_are_those_that_kubectl_arena_and_airflow_users_select_by() -> None:
    """They are KubernetesPodOperator's keys, our own, two of Arena, and one from guides to the PyTorch operator."""
    labels = owner_labels("digits-123456789abc", OWNER, 3)

    assert labels["dag_id"] == "digits"
    assert labels["try_number"] == "2"
    assert labels["ptjob-provider/attempt"] == "3"
    assert (labels["app"], labels["release"]) == ("pytorchjob", "digits-123456789abc")
    assert labels["pytorch_job_name"] == "digits-123456789abc"


def test_each_owner_has_one_label_of_its_own() -> None:
    """The label is the same for all attempts and tries, and differs for the same task of another installation."""
    key, again = owner_key(OWNER), owner_key(Owner(instance="prod", ids=IDS, labels={"try_number": "3"}))

    assert key == again == label_value(key)
    assert key not in map(owner_key, OTHERS)


def test_the_jobs_and_pods_of_an_owner_are_selected_by_labels_that_all_of_them_carry() -> None:
    assert owner_selector(OWNER).items() <= owner_labels("digits-1", OWNER, 7).items()


@given(st.text(max_size=300))
def test_any_text_becomes_a_valid_label_value(text: str) -> None:
    """The API server refuses other label values."""
    assert re.fullmatch(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", label_value(text))
    assert len(label_value(text)) <= 63


def test_a_label_value_that_was_changed_stays_distinct() -> None:
    """Run ids that differ only in characters that a label cannot contain keep different labels."""
    assert label_value("a+b") != label_value("a:b")
    assert label_value("plain-1.2_x") == "plain-1.2_x"


@each_row(
    "annotation",
    [
        *(None, "", "{", "[]", '{"instance": "prod", "ids": {}}', '{"instance": "x"}'),
        *(owner_annotation(other, 1) for other in OTHERS),
    ],
)
def test_an_object_without_our_ids_is_somebody_elses(annotation: str | None) -> None:
    """Two installations may run the same DAG in one namespace."""
    assert not is_owned_by(obj(annotation), OWNER)


def test_an_installation_owns_what_any_of_its_ids_has_made() -> None:
    """Two workers may have created an id each at the same moment; new objects get the first one."""
    instance = Instance("a1", frozenset({"b2"}))
    both = replace(OWNER, instance=instance.name, aliases=instance.aliases)
    made = [obj(owner_annotation(replace(OWNER, instance=name), 1)) for name in ("a1", "b2", "c3", "")]

    assert [is_owned_by(each, both) for each in made] == [True, True, False, False]
    assert (str(instance), instance.has("b2"), instance.has("c3"), instance.has("")) == ("a1", True, False, False)
    assert owner_in(obj(owner_annotation(both, 1))).instance == "a1"


def test_the_attempt_is_read_from_the_label() -> None:
    """An object without the label was not made by this provider and is attempt 1."""
    assert attempt_of(obj(None, **{"ptjob-provider/attempt": "4"})) == 4
    assert attempt_of(obj(None, **{"ptjob-provider/attempt": "x"})) == 1
    assert attempt_of({"metadata": {}}) == 1


def test_a_reference_is_to_an_object_and_shows_its_namespace_and_name() -> None:
    ref = JobRef.of({"kind": "PyTorchJob", "metadata": {"namespace": "team", "name": "digits", "uid": "u-1"}})

    assert ref == JobRef(kind="PyTorchJob", namespace="team", name="digits", uid="u-1")
    assert str(ref) == "team/digits"


def test_the_hash_of_a_specification_ignores_the_order_of_keys() -> None:
    assert spec_hash({"a": 1, "b": [2]}) == spec_hash({"b": [2], "a": 1})
    assert spec_hash({"a": 1}) != spec_hash({"a": 2})


@pytest.mark.parametrize(
    ("task", "stem"), [("train", "train"), ("group.Train_it", "group-train-it"), ("-7", "job-7"), ("模型", "job")]
)
def test_a_task_names_its_job(task: str, stem: str) -> None:
    """Task names may contain characters that job names cannot."""
    assert stem_of(task) == check_name(stem)


@given(st.text(max_size=250), st.text(alphabet="ab.", min_size=49, max_size=250))
def test_every_task_id_gives_a_name_that_is_short_enough_and_its_own(task: str, group: str) -> None:
    """Airflow allows 250 characters: the ids of nested task groups."""
    stems = [stem_of(name) for name in (task, f"{group}c.1", f"{group}c.2")]

    assert [check_name(stem, max_length=MAX_NAME) for stem in stems] == stems
    assert stems[1] != stems[2]
