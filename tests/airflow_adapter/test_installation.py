"""Tests of installation-wide settings for jobs: `[ptjob] job_template` and `pod_mutation_hook`."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.policies import hookimpl
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_adapter.stand_ins import context, operator
from ptjob_provider.airflow import compat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kubernetes.client import V1Pod

    from fakes import ScriptedBackend
    from ptjob_provider.core.identity import Manifest

    Hook = Callable[[V1Pod], None]


@pytest.fixture
def hooked() -> Iterator[Callable[[Hook], None]]:
    """Define a `pod_mutation_hook` as `airflow_local_settings.py` does."""
    manager, plugins = compat.policies(), []

    def define(hook: Hook) -> None:
        plugin = SimpleNamespace(pod_mutation_hook=hookimpl(hook))
        plugins.append(manager.register(plugin, name="airflow_local_settings of a test"))

    yield define
    for _ in plugins:
        manager.unregister(name="airflow_local_settings of a test")


def submitted(backend: ScriptedBackend, **arguments: Any) -> Manifest:
    """Return the job that a task has submitted."""
    operator(namespace="team", wait_for_completion=False, **arguments).execute(context())
    (job,) = backend.jobs.values()
    return job


def pods(job: Manifest) -> dict[str, Any]:
    return {role: each["template"]["spec"] for role, each in job["spec"]["pytorchReplicaSpecs"].items()}


def test_a_template_is_put_under_a_job(backend: ScriptedBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task's fields win; for the merge rules see tests/core/test_pytorchjob_layers.py."""
    template = {"labels": {"team": "vision", "tier": "low"}, "service_account_name": "trainer"}
    monkeypatch.setenv("AIRFLOW__PTJOB__JOB_TEMPLATE", json.dumps(template))

    job = submitted(backend, labels={"tier": "high"})

    assert job["metadata"]["labels"].items() >= {"team": "vision", "tier": "high"}.items()
    assert pods(job)["Master"]["serviceAccountName"] == "trainer"


def test_the_kind_of_jobs_that_name_none_is_a_setting(
    backend: ScriptedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__PTJOB__KIND", "trainjob")

    assert submitted(backend)["kind"] == "TrainJob"
    backend.jobs.clear()
    assert submitted(backend, kind="PyTorchJob")["kind"] == "PyTorchJob"


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ('{"labls": {}}', r"\[ptjob\] job_template.labls: there is no such field; did you mean labels"),
        ("/nowhere.yaml", r"\[ptjob\] job_template: No such file or directory; give JSON"),
    ],
)
def test_a_wrong_template_is_said_before_anything_starts(
    backend: ScriptedBackend, monkeypatch: pytest.MonkeyPatch, template: str, said: str
) -> None:
    """The error names the option: the task's author may not know it. It is not retried."""
    monkeypatch.setenv("AIRFLOW__PTJOB__JOB_TEMPLATE", template)

    with pytest.raises(AirflowFailException, match=said):
        submitted(backend)

    assert not backend.created


def test_the_hook_changes_the_pods_of_every_role(backend: ScriptedBackend, hooked: Callable[[Hook], None]) -> None:
    """The hook gets the pods' final names and KubernetesPodOperator's labels."""
    seen = []

    def hook(pod: V1Pod) -> None:
        seen.append((pod.metadata.namespace, pod.metadata.name, pod.metadata.labels["task_id"]))
        pod.metadata.annotations["changed"] = "yes"
        pod.spec.containers[0].image = "mirror/" + pod.spec.containers[0].image
        pod.spec.node_selector = {"pool": "gpu"}

    hooked(hook)
    job = submitted(backend, workers=2)

    name = job["metadata"]["name"]
    assert sorted(set(seen)) == [("team", f"{name}-{role}-0", "train") for role in ("master", "worker")]
    for role in job["spec"]["pytorchReplicaSpecs"].values():
        assert role["template"]["metadata"]["annotations"]["changed"] == "yes"
        assert not {"name", "namespace"} & set(role["template"]["metadata"])
    for pod in pods(job).values():
        assert (pod["containers"][0]["image"], pod["nodeSelector"]) == ("mirror/digits", {"pool": "gpu"})


def test_the_hook_loses_nothing_that_its_client_does_not_know(
    backend: ScriptedBackend, hooked: Callable[[Hook], None]
) -> None:
    """A cluster may be newer than Airflow's Kubernetes client."""
    hooked(lambda pod: pod.metadata.labels.update(seen="yes"))

    (pod,) = pods(submitted(backend, pod_template={"spec": {"fieldOfNextYear": {"a": [1]}}})).values()

    assert pod["fieldOfNextYear"] == {"a": [1]}


def test_a_hook_that_fails_ends_the_task_for_good(backend: ScriptedBackend, hooked: Callable[[Hook], None]) -> None:
    """No job was created, and a retry would fail again."""

    def hook(pod: V1Pod) -> None:
        raise RuntimeError("no GPU on Fridays")

    hooked(hook)

    with pytest.raises(AirflowFailException, match=r"pod_mutation_hook failed on team/train-.*no GPU on Fridays"):
        submitted(backend)

    assert not backend.created


def test_a_dry_run_shows_what_the_installation_adds(
    hooked: Callable[[Hook], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AIRFLOW__PTJOB__JOB_TEMPLATE", '{"queue_name": "night"}')
    hooked(lambda pod: pod.metadata.labels.update(hooked="yes"))

    operator().dry_run()

    said = capsys.readouterr().out
    assert "kueue.x-k8s.io/queue-name: night" in said
    assert "hooked: " in said
