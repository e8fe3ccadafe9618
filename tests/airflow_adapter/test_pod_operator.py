"""Tests of KubernetesPodOperator's argument names: accepted with the same meaning, or explained."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import DAG

from ptjob_provider.airflow.operators import PyTorchJobOperator
from ptjob_provider.airflow.pod_operator import ALIASES, NOT_FIELDS, PodOperatorNames
from ptjob_provider.core.errors import InvalidSpec

THEIRS = set(inspect.signature(KubernetesPodOperator.__init__).parameters) - {"self", "kwargs"}
OURS = set(inspect.signature(PyTorchJobOperator.__init__).parameters)
UNDERSTOOD = set(inspect.signature(PodOperatorNames.__init__).parameters)
ALREADY = {name: allowed for name, (allowed, _) in NOT_FIELDS.items() if allowed is not None}
INSTEAD = NOT_FIELDS.keys() - ALREADY.keys()
VALUES: dict[str, Any] = {
    "cmds": ["python"],
    "arguments": ["train.py"],
    "env_vars": {"A": "1"},
    "schedulername": "volcano",
    "hostnetwork": True,
    "termination_grace_period": 60,
    "pod_template_file": "/pod.yaml",
    "pod_template_dict": {"spec": {}},
    "full_pod_spec": {"spec": {}},
}


def test_every_name_of_kubernetes_pod_operator_is_understood_or_explained() -> None:
    """A user who replaces KubernetesPodOperator never gets only `unexpected argument`."""
    of_every_operator = {"do_xcom_push"}

    assert of_every_operator == THEIRS - OURS - UNDERSTOOD - INSTEAD


def test_explained_names_are_those_of_kubernetes_pod_operator_and_not_ours() -> None:
    """A name that they drop, or that we add, must leave the table."""
    assert INSTEAD <= THEIRS
    assert not INSTEAD & (OURS | UNDERSTOOD)
    assert set(ALIASES) <= THEIRS & UNDERSTOOD
    assert set(ALREADY) <= THEIRS & UNDERSTOOD


@pytest.mark.parametrize("alias", VALUES)
def test_an_alias_sets_the_field(alias: str) -> None:
    task: Any = PyTorchJobOperator(task_id="train", image="digits", **{alias: VALUES[alias]})

    assert getattr(task, ALIASES[alias]) is VALUES[alias]


def test_start_up_limits_of_kubernetes_pod_operator_set_our_limits() -> None:
    task = PyTorchJobOperator(task_id="train", image="digits", startup_timeout_seconds=5, schedule_timeout_seconds=6)

    assert task.limits == {"start_timeout": 5, "queue_timeout": 6}


@pytest.mark.parametrize("both", [{"cmds": ["a"], "command": ["a"]}, {"pod_template_file": "a", "full_pod_spec": {}}])
def test_a_field_that_is_given_twice_is_refused(both: dict[str, Any]) -> None:
    """Also with equal values: the choice between two places would be a guess."""
    with pytest.raises(InvalidSpec, match=r"mean the same; give one of them") as error:
        PyTorchJobOperator(task_id="train", **both)

    assert all(name in str(error.value) for name in both)


@pytest.mark.parametrize("name", sorted(INSTEAD))
def test_a_name_that_means_nothing_says_what_to_use_instead(name: str) -> None:
    """At parse time; None, the default of most of them, is accepted."""
    PyTorchJobOperator(task_id="train", image="digits", **{name: None})

    with pytest.raises(
        InvalidSpec, match=f"^{name}: True is not allowed; a training job has no such argument: .{{10}}"
    ):
        PyTorchJobOperator(task_id="train", image="digits", **{name: True})


@pytest.mark.parametrize("name", ALREADY)
def test_an_argument_that_asks_for_the_only_behaviour_is_accepted(name: str) -> None:
    """In the task, in `default_args` and in `partial`; the opposite value is refused with a reason."""
    asked: dict[str, Any] = {name: ALREADY[name]}

    with DAG("training", schedule=None, default_args=asked):
        PyTorchJobOperator(task_id="by_default", image="digits")
        PyTorchJobOperator(task_id="train", image="digits", **asked)
        PyTorchJobOperator.partial(task_id="mapped", image="digits", **asked).expand(args=[["a"], ["b"]])

    with pytest.raises(InvalidSpec, match=f"^{name}: 'else' is not allowed; allowed: .*, or left out; .{{10}}"):
        PyTorchJobOperator(task_id="train", image="digits", **{name: "else"})
