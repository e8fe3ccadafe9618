from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.spec import JOB_FIELDS, TrainingJob
from ptjob_provider.core.spec.parsers import parse_each
from recorded import DATA, recorded
from rows import each_row


def job(**values: Any) -> TrainingJob:
    return TrainingJob.parse(**{"name": "digits", "image": "registry.example/digits:1", **values})


def refusal(**values: Any) -> str:
    with pytest.raises(InvalidSpec) as error:
        job(**values)
    return str(error.value)


def test_every_field_is_unset_until_somebody_sets_it() -> None:
    """A job with a name and an image has None everywhere else, so that an override differs from a default."""
    described = job()

    assert {name for name in JOB_FIELDS if getattr(described, name) is not None} == {"name", "image"}


@each_row(
    ("field", "given_value", "read"),
    [
        ("name", " digits ", "digits"),
        ("command", ["python", "train.py"], ("python", "train.py")),
        ("args", ("--epochs", 5, 0.1, ""), ("--epochs", "5", "0.1", "")),
        ("workers", "2", 2),
        ("nproc_per_node", "auto", "auto"),
        ("gpus", " 0 ", 0),
        ("cpu", 2, "2"),
        ("cpu", "500m", "500m"),
        ("memory", "1.5Gi", "1.5Gi"),
        ("memory", 2**30, str(2**30)),
        ("shared_memory", "true", "2Gi"),
        ("shared_memory", "False", "0"),
        ("shared_memory", 0, "0"),
        ("working_dir", "/code/", "/code"),
        ("active_deadline_seconds", timedelta(hours=2), 7200),
        ("suspend", "True", True),
        ("node_selector", {"gpu": "a100", "zone": 3}, {"gpu": "a100", "zone": "3"}),
        ("tolerations", [{"value": 1, "tolerationSeconds": "60"}], ({"value": "1", "tolerationSeconds": 60},)),
        ("tolerations", [{"key": "gpu", "effect": None}], ({"key": "gpu"},)),
        ("image_pull_secrets", ["one", {"name": "two"}], ("one", "two")),
        ("labels", {"team": "vision", "example.com/cost": ""}, {"team": "vision", "example.com/cost": ""}),
        ("annotations", {"note": "any text: at all"}, {"note": "any text: at all"}),
    ],
)
def test_a_field_is_read_in_the_forms_that_people_and_templates_write(field: str, given_value: Any, read: Any) -> None:
    """Numbers and switches as text, numbers as text, lists and tuples: one form results."""
    found = getattr(job(**{field: given_value}), field)

    assert found == read
    assert type(found) is type(read)


@each_row("nothing", [None, "", "  ", "None"])
@each_row("field", sorted(set(JOB_FIELDS) - {"name", "image", "clean_pod_policy"}))
def test_an_empty_value_from_a_template_leaves_a_field_unset(field: str, nothing: Any) -> None:
    assert getattr(job(**{field: nothing}), field) is None


def test_the_policy_named_none_is_a_value() -> None:
    """`clean_pod_policy="None"` is the CRD's value for keeping all pods; None and empty leave the default."""
    policies = [job(clean_pod_policy=value).clean_pod_policy for value in ("None", None, "")]

    assert policies == ["None", None, None]


@each_row(
    ("field", "value", "message"),
    [
        ("nmae", "x", "nmae: there is no such field; did you mean name?"),
        ("qqqq", "x", "qqqq: there is no such field; known: name, namespace, image"),
        ("name", "Digits_1", "name: 'Digits_1' is not allowed; allowed: lower-case letters"),
        ("name", "", "name: None is not allowed; required without a manifest"),
        ("name", 3, "name: 3 is not allowed; allowed: a text"),
        ("workers", True, "workers: True"),
        ("workers", "9" * 5000, "workers: '999"),
        ("workers", 10**5000, "workers: 0x"),
        ("workers", 10_001, "workers: 10001 is not allowed; allowed: a whole number, at least 1, at most 10000"),
        (
            "nproc_per_node",
            "all",
            "nproc_per_node: 'all' is not allowed; allowed: a whole number, at least 1, at most 2",
        ),
        ("cpu", "lots", "cpu: 'lots' is not allowed; allowed: cores such as 4, 0.5 or 500m, at least 1m"),
        ("cpu", "4Gi", "cpu: '4Gi' is not allowed; allowed: cores such as 4"),
        ("cpu", "9" * 41, "cpu: '999"),
        ("cpu", 0, "cpu: 0 is not allowed; allowed: cores"),
        ("memory", "4", "memory: '4' is not allowed; allowed: bytes with a unit"),
        ("memory", "16GB", "did you mean 16Gi?"),
        ("command", "python train.py", "command: 'python train.py' is not allowed; allowed: a list such as ["),
        ("args", ["--fast", True], "args[1]: True is not allowed; allowed: a text or a number"),
        ("working_dir", "code", "working_dir: 'code' is not allowed; allowed: an absolute path"),
        ("working_dir", "/code/../etc", "working_dir: '/code/../etc'"),
        ("restart_policy", "OnFaliure", "allowed: Never, OnFailure, ExitCode, Always"),
        ("suspend", "maybe", "suspend: 'maybe' is not allowed; allowed: true or false"),
        ("env", "A=1", "env: this value is not allowed; allowed: a map"),
        ("volumes", "runs:/runs", "volumes: 'runs:/runs' is not allowed; allowed: a list"),
        ("node_selector", {"gpu": None}, "node_selector.gpu: None"),
        ("node_selector", {1: "x"}, "node_selector: {1: 'x'}"),
        ("labels", {"team": "a b"}, "labels.team: 'a b' is not allowed; allowed: at most 63"),
        ("labels", {"-x": "a"}, "labels: '-x' is not allowed; allowed: a name such as"),
        ("tolerations", [{"keys": "gpu"}], "tolerations[0].keys: there is no such field; did you mean key?"),
        ("tolerations", [{"effect": "NoShedule"}], "tolerations[0].effect: 'NoShedule'"),
        ("cpu", "٣", "cpu: '٣' is not allowed; allowed: cores such as 4"),
        ("image_pull_secrets", [""], "image_pull_secrets[0]: ''"),
        ("manifest", "kind: Job", "manifest.kind: 'Job'"),
        ("master", {"imgae": "x"}, "master.imgae: there is no such field; did you mean image?"),
    ],
)
def test_a_wrong_field_is_refused_by_its_name_and_value_and_with_what_is_allowed(
    field: str, value: Any, message: str
) -> None:
    assert message in refusal(**{field: value})


@given(
    st.dictionaries(
        st.sampled_from(JOB_FIELDS),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=3)
            ),
            max_leaves=5,
        ),
        max_size=6,
    )
)
def test_random_fields_are_parsed_or_refused_as_an_invalid_spec(values: dict[str, Any]) -> None:
    """The result is a job or an InvalidSpec: no TypeError, and no traceback of the package in a user's log."""
    try:
        described = TrainingJob.parse(**values)
    except InvalidSpec:
        return

    assert isinstance(described, TrainingJob)


def test_a_manifest_needs_no_other_field_and_is_held_as_a_copy() -> None:
    described = TrainingJob.parse(manifest=DATA / "manifest-args-only.yaml")

    assert described.manifest == recorded("manifest-args-only")
    assert (described.name, described.image) == (None, None)


def test_arguments_are_checked_one_by_one_before_the_job_is_whole() -> None:
    """A DAG file is refused for a wrong value even if other values are templates, and so not known yet."""
    assert parse_each(TrainingJob, {"workers": 2, "image": None}) == {"workers": 2}

    with pytest.raises(InvalidSpec, match=r"workers: 0 .*1"):
        parse_each(TrainingJob, {"workers": 0})
