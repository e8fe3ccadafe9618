"""Tests of the hook: the back-end from `[ptjob]`, and the URLs of a job's links."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from airflow.sdk._shared.secrets_masker import redact

from airflow_adapter.stand_ins import StandInTaskInstance
from ptjob_provider.airflow.hooks import PyTorchJobHook
from ptjob_provider.airflow.links import PyTorchJobLink, PyTorchJobLogsLink, PyTorchJobTensorBoardLink
from ptjob_provider.airflow.operators import PyTorchJobOperator
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.local.backend import LocalBackend

if TYPE_CHECKING:
    from pathlib import Path

OPERATOR = PyTorchJobOperator(task_id="train", image="digits")
CANARY = "canary-4711-secret"


def test_local_is_this_machine(local: Path) -> None:
    assert isinstance(PyTorchJobHook("nobody_defined_me").backend(), LocalBackend)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("backend", "cluster", "kubernetes, local"),
        ("local_gpus", "some", "ignore"),
        ("local_images", "{no json", "JSON"),
    ],
)
def test_a_wrong_option_is_named(
    monkeypatch: pytest.MonkeyPatch, local: Path, option: str, value: str, said: str
) -> None:
    """See tests/kfp_adapter/test_environment.py for the options that all adapters share."""
    monkeypatch.setenv(f"AIRFLOW__PTJOB__{option.upper()}", value)

    with pytest.raises(InvalidSpec, match=f"{option.removeprefix('local_')}.*({said})"):
        PyTorchJobHook().backend()


def test_secrets_are_masked_in_airflows_logs(monkeypatch: pytest.MonkeyPatch, local: Path) -> None:
    monkeypatch.setenv("AIRFLOW__PTJOB__LOCAL_SECRETS", json.dumps({"wandb": {"token": CANARY}}))

    PyTorchJobHook().backend()

    assert CANARY not in str(redact(f"the token is {CANARY}"))


def test_a_wrong_table_of_secrets_is_not_repeated(monkeypatch: pytest.MonkeyPatch, local: Path) -> None:
    """The error may be logged."""
    monkeypatch.setenv("AIRFLOW__PTJOB__LOCAL_SECRETS", json.dumps({"wandb": CANARY}))

    with pytest.raises(InvalidSpec) as error:
        PyTorchJobHook().backend()

    assert CANARY not in str(error.value)


def test_a_claims_address_leads_to_its_directory(local: Path) -> None:
    """For tasks that run where the claims are."""
    claim = local / "claims" / "team" / "models"
    claim.mkdir(parents=True)

    assert PyTorchJobHook().local_path("pvc://models/m.pt", namespace="team") == claim / "m.pt"


def job_known() -> StandInTaskInstance:
    """Return a task whose job is known."""
    pushed = {"job_name": "digits", "job_namespace": "team", "job_uid": "u/1"}
    return StandInTaskInstance(pushed=pushed)


def test_a_button_leads_to_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__PTJOB__JOB_URL", "https://jobs/{namespace}/{name}?uid={uid}")

    assert PyTorchJobLink().get_link(OPERATOR, ti_key=job_known()) == "https://jobs/team/digits?uid=u%2F1"


def test_a_button_without_an_address_or_a_job_leads_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow shows no link for an empty URL."""
    assert PyTorchJobLogsLink().get_link(OPERATOR, ti_key=job_known()) == ""

    monkeypatch.setenv("AIRFLOW__PTJOB__LOG_URL", "https://logs/{name}")

    assert PyTorchJobLogsLink().get_link(OPERATOR, ti_key=StandInTaskInstance()) == ""


def test_a_button_leads_to_the_tensorboard_beside_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """The URL is empty without a TensorBoard; otherwise it is the Service's or from the installation's template."""
    known = job_known()
    assert PyTorchJobTensorBoardLink().get_link(OPERATOR, ti_key=known) == ""

    known.pushed["tensorboard_url"] = "http://10.0.0.7:30131/"
    own = PyTorchJobTensorBoardLink().get_link(OPERATOR, ti_key=known)
    monkeypatch.setenv("AIRFLOW__PTJOB__TENSORBOARD_URL", "https://tb/{namespace}/{name}/")
    theirs = PyTorchJobTensorBoardLink().get_link(OPERATOR, ti_key=known)

    assert (own, theirs) == ("http://10.0.0.7:30131/", "https://tb/team/digits/")
