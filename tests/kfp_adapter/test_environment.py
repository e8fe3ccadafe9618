"""Tests of the settings that a step reads from its environment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kfp_adapter.pod_stand_in import pod
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.kubernetes import ClusterConfig, KubernetesBackend, OwnPod
from ptjob_provider.core.local.backend import LocalBackend
from ptjob_provider.kfp.environment import INSTANCE, read_environment
from rows import each_row

POD = {"KFP_POD_NAME": "run-step-1", "KFP_POD_UID": "uid-1"}
NOWHERE = Path("/nowhere")


@pytest.fixture
def service_account(tmp_path: Path) -> Path:
    """Return a service account directory as it is mounted in a pod."""
    (tmp_path / "namespace").write_text("team\n")
    return tmp_path


def test_in_a_pod_jobs_run_beside_it_and_it_can_own_them(service_account: Path) -> None:
    environment = read_environment(POD, service_account=service_account)

    assert isinstance(environment.backend, KubernetesBackend)
    assert (environment.namespace, environment.instance, environment.retry) == ("team", INSTANCE, None)
    assert environment.pod == OwnPod(
        config=ClusterConfig(in_cluster=True), namespace="team", name="run-step-1", uid="uid-1"
    )


@each_row(
    ("environ", "usage_interval", "api_error_timeout", "kind"),
    [
        ({}, 120, 900, None),
        ({"PTJOB_USAGE_INTERVAL": "0", "PTJOB_API_ERROR_TIMEOUT": "60", "PTJOB_KIND": "trainjob"}, 0, 60, "TrainJob"),
    ],
)
def test_options_of_the_installation_have_defaults(
    environ: dict[str, str], usage_interval: float, api_error_timeout: float, kind: str | None
) -> None:
    """Usage is sampled every two minutes (0: never); API errors are tolerated for 15 minutes; the kind is not fixed."""
    environment = read_environment(environ, service_account=NOWHERE)

    assert environment.cluster is not None
    assert environment.cluster.usage_interval == usage_interval
    assert (environment.api_error_timeout, environment.installation.kind) == (api_error_timeout, kind)


def test_outside_of_a_pod_nothing_owns_a_job() -> None:
    """On one machine, or with a kubeconfig."""
    environment = read_environment(POD, service_account=NOWHERE)

    assert (environment.pod, environment.namespace) == (None, None)


def test_on_one_machine_options_are_read_from_the_environment(tmp_path: Path) -> None:
    """The names match Airflow's section `[ptjob]`."""
    environ = {
        "PTJOB_BACKEND": "local",
        "PTJOB_LOCAL_ROOT": str(tmp_path),
        "PTJOB_LOCAL_SECRETS": '{"hub": {"token": "canary"}}',
        "PTJOB_INSTANCE": "mine",
        "PTJOB_JOB_TEMPLATE": '{"labels": {"team": "vision"}}',
    }

    environment = read_environment(environ, service_account=NOWHERE)

    assert isinstance(environment.backend, LocalBackend)
    assert environment.local is not None
    assert environment.local.title("local_gpus") == "PTJOB_LOCAL_GPUS"
    assert (environment.local.root, environment.instance, environment.secrets) == (tmp_path, "mine", ("canary",))
    assert environment.installation.template is not None
    assert environment.installation.template.labels == {"team": "vision"}


@each_row(
    ("environ", "number", "expected"),
    [
        ({}, None, None),
        ({"KFP_RETRY_INDEX": ""}, None, None),
        ({"KFP_RETRY_INDEX": "12"}, None, 12),
        ({"KFP_RETRY_INDEX": "{{retries}}"}, None, 1),
        ({}, 0, 0),
        ({"KFP_RETRY_INDEX": "0"}, 1, 1),
    ],
)
async def test_a_step_knows_which_try_it_is(environ: dict[str, str], number: int | None, expected: int | None) -> None:
    """Kubeflow Pipelines sets the index only on steps with retries; Argo annotates the pods of steps it may retry."""
    environment = read_environment(environ, service_account=NOWHERE)

    assert await replace(environment, pod=pod("uid-1", number=number)).try_number() == expected
    assert await environment.try_number() == environment.retry


@each_row(
    ("environ", "text"),
    [
        ({"PTJOB_BACKEND": "cloud"}, "PTJOB_BACKEND: 'cloud'.*kubernetes, local"),
        ({"PTJOB_JOB_TEMPLATE": '{"name": "x"}'}, "PTJOB_JOB_TEMPLATE.name"),
        ({"PTJOB_KIND": "TFJob"}, "PTJOB_KIND: 'TFJob'.*PyTorchJob, TrainJob"),
        ({"PTJOB_PROBE_TIMEOUT": "soon"}, "PTJOB_PROBE_TIMEOUT: 'soon'"),
        ({"PTJOB_BACKEND": "local", "PTJOB_LOCAL_SECRETS": '{"a": "b"}'}, "PTJOB_LOCAL_SECRETS: a has to be a map"),
    ],
)
def test_a_wrong_option_is_said_as_it_is_written(environ: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidSpec, match=text):
        read_environment(environ, service_account=NOWHERE)
