"""What a step takes from its environment: where it is, and what the installation wants."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kfp_adapter.pod_stand_in import pod
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.kubernetes import ClusterConfig, KubernetesBackend, OwnPod
from ptjob_provider.core.local import LocalBackend
from ptjob_provider.kfp.environment import INSTANCE, find_place

POD = {"KFP_POD_NAME": "run-step-1", "KFP_POD_UID": "uid-1"}
NOWHERE = Path("/nowhere")


@pytest.fixture
def service_account(tmp_path: Path) -> Path:
    """Return what a pod has of its service account."""
    (tmp_path / "namespace").write_text("team\n")
    return tmp_path


def test_in_a_pod_jobs_run_beside_it_and_it_can_own_them(service_account: Path) -> None:
    """The namespace is the pod's, and so is the reference."""
    place = find_place(POD, service_account=service_account)

    assert isinstance(place.backend, KubernetesBackend)
    assert (place.namespace, place.instance, place.retry) == ("team", INSTANCE, None)
    assert place.pod == OwnPod(config=ClusterConfig(in_cluster=True), namespace="team", name="run-step-1", uid="uid-1")
    assert place.pod.as_owner == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "run-step-1",
        "uid": "uid-1",
        "blockOwnerDeletion": False,
    }


@pytest.mark.parametrize(("environ", "seconds"), [({}, 120), ({"PTJOB_USAGE_INTERVAL": "0"}, 0)])
def test_the_installation_says_how_often_use_is_measured(environ: dict[str, str], seconds: float) -> None:
    """Every two minutes if it says nothing; 0 is never."""
    cluster = find_place(environ, service_account=NOWHERE).cluster

    assert cluster is not None
    assert cluster.usage_interval == seconds


@pytest.mark.parametrize(("environ", "seconds"), [({}, 900), ({"PTJOB_API_ERROR_TIMEOUT": "60"}, 60)])
def test_the_installation_says_how_long_refusals_are_waited_out(environ: dict[str, str], seconds: float) -> None:
    """A quarter of an hour if it says nothing."""
    assert find_place(environ, service_account=NOWHERE).api_error_timeout == seconds


@pytest.mark.parametrize(("environ", "kind"), [({}, None), ({"PTJOB_KIND": "trainjob"}, "TrainJob")])
def test_the_installation_says_which_kind_a_job_is(environ: dict[str, str], kind: str | None) -> None:
    """Any that is served if it says nothing."""
    assert find_place(environ, service_account=NOWHERE).kind == kind


def test_outside_of_a_pod_nothing_owns_a_job() -> None:
    """On one machine, or with a kubeconfig."""
    place = find_place(POD, service_account=NOWHERE)

    assert (place.pod, place.namespace) == (None, None)


def test_on_one_machine_its_options_are_the_environments(tmp_path: Path) -> None:
    """The names are those of Airflow's section `[ptjob]`."""
    environ = {
        "PTJOB_BACKEND": "local",
        "PTJOB_LOCAL_ROOT": str(tmp_path),
        "PTJOB_LOCAL_SECRETS": '{"hub": {"token": "canary"}}',
        "PTJOB_INSTANCE": "mine",
        "PTJOB_JOB_TEMPLATE": '{"labels": {"team": "vision"}}',
    }

    place = find_place(environ, service_account=NOWHERE)

    assert isinstance(place.backend, LocalBackend)
    assert place.local is not None
    assert (place.local.root, place.instance, place.secrets) == (tmp_path, "mine", ("canary",))
    assert place.template is not None
    assert place.template.labels == {"team": "vision"}


@pytest.mark.parametrize(
    ("environ", "number", "found"),
    [
        ({}, None, None),
        ({"KFP_RETRY_INDEX": ""}, None, None),
        ({"KFP_RETRY_INDEX": "0"}, None, 0),
        ({"KFP_RETRY_INDEX": "12"}, None, 12),
        ({"KFP_RETRY_INDEX": "{{retries}}"}, None, 1),
        ({}, 0, 0),
        ({}, 1, 1),
        ({"KFP_RETRY_INDEX": "0"}, 1, 1),
    ],
)
async def test_a_step_knows_which_try_it_is(environ: dict[str, str], number: int | None, found: int | None) -> None:
    """Kubeflow Pipelines tells it to steps with retries only; Argo writes it on the pod of every step it may repeat."""
    place = find_place(environ, service_account=NOWHERE)

    assert await replace(place, pod=pod("uid-1", number=number)).try_number() == found
    assert await place.try_number() == place.retry


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"PTJOB_BACKEND": "cloud"}, "PTJOB_BACKEND: 'cloud'.*kubernetes, local"),
        ({"PTJOB_JOB_TEMPLATE": '{"name": "x"}'}, "PTJOB_JOB_TEMPLATE.name"),
        ({"PTJOB_KIND": "TFJob"}, "PTJOB_KIND: 'TFJob'.*PyTorchJob, TrainJob"),
        ({"PTJOB_PROBE_TIMEOUT": "soon"}, "PTJOB_PROBE_TIMEOUT: 'soon'"),
        ({"PTJOB_BACKEND": "local", "PTJOB_LOCAL_IMAGES": '{"a": 1}'}, "PTJOB_LOCAL_IMAGES"),
        (
            {"PTJOB_BACKEND": "local", "PTJOB_LOCAL_SECRETS": "/nowhere.yaml"},
            "PTJOB_LOCAL_SECRETS: No such file or directory; give",
        ),
        ({"PTJOB_BACKEND": "local", "PTJOB_LOCAL_SECRETS": '{"a": "b"}'}, "PTJOB_LOCAL_SECRETS: a has to be a map"),
    ],
)
def test_a_wrong_option_is_said_as_it_is_written(environ: dict[str, str], said: str) -> None:
    """A person finds the variable by its name."""
    with pytest.raises(InvalidSpec, match=said):
        find_place(environ, service_account=NOWHERE)
