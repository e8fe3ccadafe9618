"""Tests of cluster configuration from real `kubernetes` connections and task arguments."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook
from airflow.providers.common.compat.sdk import AirflowException, AirflowNotFoundException
from airflow.sdk._shared.secrets_masker import redact

from ptjob_provider.airflow import config
from ptjob_provider.airflow import connection as reaching
from ptjob_provider.airflow.connection import ConnectionArgs, ConnectionMissing
from ptjob_provider.airflow.hooks import PyTorchJobHook
from ptjob_provider.core.errors import InvalidSpec, UnsupportedByBackend
from ptjob_provider.core.kubernetes import ClusterConfig, KubernetesBackend

if TYPE_CHECKING:
    from airflow_adapter.stand_ins import FakeComms

TOKEN, PASSWORD, PLUGIN_SECRET = "canary-token-4711", "canary-password-4712", "canary-plugin-4713"
USERS = [
    {"name": "a", "user": {"token": TOKEN, "password": PASSWORD}},
    {
        "name": "b",
        "user": {"exec": {"command": "login", "env": [{"name": "GOOGLE_CREDENTIALS", "value": PLUGIN_SECRET}]}},
    },
    {"name": "c", "user": {"exec": {"command": "login", "env": [{"name": "AWS_PROFILE", "value": "default"}]}}},
]
KUBECONFIG = {"apiVersion": "v1", "kind": "Config", "users": USERS}


@pytest.fixture(autouse=True)
def _on_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__PTJOB__BACKEND", "kubernetes")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


def define(monkeypatch: pytest.MonkeyPatch, conn_id: str = "kubernetes_default", **extra: Any) -> None:
    connection = {"conn_type": "kubernetes", "extra": extra}
    monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(connection))


def test_the_hook_is_one_of_the_cncf_provider() -> None:
    assert issubclass(PyTorchJobHook, KubernetesHook)
    assert (PyTorchJobHook.conn_type, PyTorchJobHook.default_conn_name) == ("kubernetes", "kubernetes_default")


@pytest.mark.parametrize(
    ("extra", "config"),
    [
        ({}, ClusterConfig()),
        ({"in_cluster": True}, ClusterConfig(in_cluster=True)),
        ({"kube_config_path": "/etc/kube"}, ClusterConfig(kube_config_path="/etc/kube")),
        ({"extra__kubernetes__kube_config_path": "/etc/kube"}, ClusterConfig(kube_config_path="/etc/kube")),
        ({"kube_config": KUBECONFIG}, ClusterConfig(kube_config=json.dumps(KUBECONFIG))),
        ({"cluster_context": "staging"}, ClusterConfig(context="staging")),
        ({"disable_verify_ssl": True}, ClusterConfig(verify_ssl=False)),
        ({"disable_tcp_keepalive": True}, ClusterConfig(tcp_keepalive=False)),
    ],
)
def test_every_extra_says_how_the_cluster_is_reached(
    monkeypatch: pytest.MonkeyPatch, extra: dict[str, Any], config: ClusterConfig
) -> None:
    """The extras have the same meaning as in KubernetesHook."""
    define(monkeypatch, **extra)

    assert PyTorchJobHook().cluster_config() == config


@pytest.mark.parametrize(
    ("argument", "extra", "config"),
    [
        ({"config_file": "/mine"}, {"kube_config_path": "/theirs"}, ClusterConfig(kube_config_path="/mine")),
        ({"cluster_context": "mine"}, {"cluster_context": "theirs"}, ClusterConfig(context="mine")),
        ({"in_cluster": True}, {}, ClusterConfig(in_cluster=True)),
        ({"config_file": "", "cluster_context": ""}, {"kube_config_path": "/p"}, ClusterConfig(kube_config_path="/p")),
    ],
)
def test_an_argument_wins_over_the_connection(
    monkeypatch: pytest.MonkeyPatch, argument: dict[str, Any], extra: dict[str, Any], config: ClusterConfig
) -> None:
    """An argument whose template rendered to an empty text does not win."""
    define(monkeypatch, **extra)

    assert PyTorchJobHook(**argument).cluster_config() == config


def test_the_installation_says_how_many_logs_are_followed_and_how_often_use_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIRFLOW__PTJOB__MAX_LOG_STREAMS", "7")
    monkeypatch.setenv("AIRFLOW__PTJOB__USAGE_INTERVAL", "30")

    found = PyTorchJobHook(None).cluster_config()

    assert (found.max_log_streams, found.usage_interval) == (7, 30)


def test_the_installation_says_how_long_refusals_are_waited_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__PTJOB__BACKEND", "local")
    assert ConnectionArgs().resolve().api_error_timeout == 900

    monkeypatch.setenv("AIRFLOW__PTJOB__API_ERROR_TIMEOUT", "60")
    assert ConnectionArgs().resolve().api_error_timeout == 60


@pytest.mark.parametrize(
    ("option", "texts", "allowed"),
    [
        ("usage_interval", ["-1", "often", "inf"], "seconds, or 0 for never"),
        ("api_error_timeout", ["soon"], "seconds, 0 or more"),
        ("max_log_streams", ["0", "-1", "many", "1.5"], "a whole number, at least 1"),
        ("max_log_records_per_second", ["0", "-1", "many", "nan", "inf", ""], "a number above 0"),
    ],
)
def test_an_option_that_is_no_such_number_is_refused(
    monkeypatch: pytest.MonkeyPatch, option: str, texts: list[str], allowed: str
) -> None:
    """The error names the option and the allowed values."""
    read = getattr(config, option, None) or getattr(config.SECTION_OPTIONS, option)
    for text in texts:
        monkeypatch.setenv(f"AIRFLOW__PTJOB__{option.upper()}", text)

        with pytest.raises(InvalidSpec, match=rf"^\[ptjob\] {option}: '{text}' is not allowed; .*{allowed}"):
            read()


@pytest.mark.parametrize(
    ("argument", "extra"),
    [
        ({}, {"in_cluster": True, "kube_config_path": "/p"}),
        ({}, {"kube_config": KUBECONFIG, "kube_config_path": "/p"}),
        ({"config_file": "/p"}, {"kube_config": KUBECONFIG}),
    ],
)
def test_two_ways_to_the_cluster_are_refused(
    monkeypatch: pytest.MonkeyPatch, argument: dict[str, Any], extra: dict[str, Any]
) -> None:
    """KubernetesHook refuses them, too. The error names the connection and contains no secrets."""
    define(monkeypatch, **extra)

    with pytest.raises(InvalidSpec, match=r"connection kubernetes_default.*one way to the cluster") as error:
        PyTorchJobHook(**argument).backend()

    assert TOKEN not in str(error.value)
    with pytest.raises(AirflowException, match="mutually exclusive"):
        KubernetesHook(**argument).get_conn()


def test_an_extra_that_is_no_switch_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guess could connect to another cluster, or without verifying the server."""
    define(monkeypatch, disable_verify_ssl="perhaps")

    with pytest.raises(InvalidSpec, match=r"disable_verify_ssl.*perhaps.*true or false"):
        PyTorchJobHook().cluster_config()


def test_a_default_connection_that_cannot_be_read_is_no_other_cluster(comms: FakeComms) -> None:
    """Airflow says "isn't defined" for it, too; in another cluster, a retry would train a second time."""
    comms.refuses = True

    with pytest.raises(ConnectionError, match="the API server is away"):
        ConnectionArgs().resolve()

    comms.refuses = False

    assert ConnectionArgs().resolve().args.kubernetes_conn_id is None


def test_any_other_connection_has_to_be_defined() -> None:
    with pytest.raises(AirflowNotFoundException, match="staging_cluster"):
        PyTorchJobHook("staging_cluster").backend()


def test_the_connections_namespace_is_the_default_one(monkeypatch: pytest.MonkeyPatch) -> None:
    define(monkeypatch, namespace="team", kube_config_path="/p")

    assert ConnectionArgs().resolve().namespace == "team"


def test_credentials_of_a_connection_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also inside a kubeconfig that is given as one text; a plugin's other variables are ordinary words."""
    define(monkeypatch, kube_config=json.dumps(KUBECONFIG))

    PyTorchJobHook().backend()

    said = str(redact(f"{TOKEN} {PASSWORD} {PLUGIN_SECRET}"))
    assert not {TOKEN, PASSWORD, PLUGIN_SECRET} & set(said.split())
    assert redact("the default queue") == "the default queue"


def test_a_configuration_does_not_show_its_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration appears in tracebacks."""
    define(monkeypatch, kube_config=json.dumps(KUBECONFIG))

    assert TOKEN not in repr(PyTorchJobHook().cluster_config())


def test_the_connection_arguments_of_a_trigger_hold_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trigger's arguments are stored in Airflow's database."""
    define(monkeypatch, kube_config=json.dumps(KUBECONFIG))

    access = ConnectionArgs(cluster_context="staging").resolve().args

    assert access.to_dict() == {
        "kubernetes_conn_id": "kubernetes_default",
        "in_cluster": None,
        "config_file": None,
        "cluster_context": "staging",
    }


def test_a_claim_of_a_cluster_is_no_directory_here() -> None:
    with pytest.raises(UnsupportedByBackend, match=r"\[ptjob\] backend = kubernetes"):
        PyTorchJobHook().local_path("pvc://models/m.pt")


@pytest.mark.usefixtures("comms")
class TestInTriggerer:
    """The fake supervisor has no connections: those of the environment are used."""

    async def test_a_connection_that_only_workers_know_is_reported(self) -> None:
        """The error says where to define the connection; a later try may find it."""
        with pytest.raises(ConnectionMissing, match=r"'gpu_cluster'.*triggerer.*AIRFLOW_CONN_GPU_CLUSTER") as error:
            await ConnectionArgs(kubernetes_conn_id="gpu_cluster").async_resolve()

        assert error.value.retryable

    async def test_a_default_connection_that_only_workers_know_is_no_other_cluster(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The triggerer's own kubeconfig may point to another cluster, where the job would look deleted."""
        define(monkeypatch, kube_config_path="/p")
        access = ConnectionArgs().resolve().args
        monkeypatch.delenv("AIRFLOW_CONN_KUBERNETES_DEFAULT")

        with pytest.raises(ConnectionMissing):
            await access.async_resolve()

    async def test_a_task_without_a_connection_needs_none_in_the_triggerer(self) -> None:
        """The triggerer uses the same default: a pod's service account or the default kubeconfig."""
        access = ConnectionArgs().resolve().args

        place = await access.async_resolve()

        assert access.kubernetes_conn_id is None
        assert isinstance(place.backend, KubernetesBackend)

    async def test_a_connection_that_changes_is_seen_by_the_triggers_that_start_later(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A connection is cached for a short time only."""
        access = ConnectionArgs(kubernetes_conn_id="gpu_cluster")
        define(monkeypatch, "gpu_cluster", kube_config_path="/p", namespace="before")
        await access.async_resolve()
        define(monkeypatch, "gpu_cluster", kube_config_path="/p", namespace="after")
        soon = await access.async_resolve()

        monkeypatch.setattr(reaching, "FRESH", 0.0)  # 30 s in production
        later = await access.async_resolve()

        assert (soon.namespace, later.namespace) == ("before", "after")

    async def test_a_connection_that_was_missing_is_looked_for_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """That it was missing counts for a few seconds."""
        monkeypatch.setattr("ptjob_provider.airflow.connection._REFUSED", 0.0)
        access = ConnectionArgs(kubernetes_conn_id="gpu_cluster")
        with pytest.raises(ConnectionMissing):
            await access.async_resolve()

        define(monkeypatch, "gpu_cluster", kube_config_path="/p", namespace="team")

        assert (await access.async_resolve()).namespace == "team"
