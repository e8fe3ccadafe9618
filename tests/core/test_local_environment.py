from __future__ import annotations

from typing import Any

import pytest

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.local.launch import Place, Stores, expand, injected, is_own_host, resolve, total_replicas
from ptjob_provider.core.local.operator import defaulted
from rows import each_row

STORES = Stores(secrets={"s": {"k": "hidden", "bad name": "x"}}, config_maps={"m": {"mode": "fast", "9": "n"}})


def job(**spec: Any) -> dict[str, Any]:
    return defaulted({"metadata": {"name": "j"}, "spec": {"pytorchReplicaSpecs": roles(master=True), **spec}})


def roles(*, master: bool, workers: int = 2) -> dict[str, Any]:
    worker = {"Worker": {"replicas": workers, "template": {}}}
    return {"Master": {"template": {}}, **worker} if master else worker


def place(role: str = "Worker", index: int = 1) -> Place:
    return Place(role=role, index=index, port=20001, rdzv_port=20002)


def names(variables: list[dict[str, str]]) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in variables}


@pytest.mark.parametrize(("role", "index", "rank"), [("Master", 0, "0"), ("Worker", 0, "1"), ("Worker", 1, "2")])
def test_a_rank_is_the_replicas_place(role: str, index: int, rank: str) -> None:
    """The master is 0, workers count from 1."""
    found = names(injected(job(), place(role, index)))

    assert (found["RANK"], found["PET_NODE_RANK"]) == (rank, rank)


def test_a_static_job_gets_the_operators_variables_in_its_order() -> None:
    """The last of two duplicates wins in Kubernetes, so order is part of the promise."""
    assert injected(job(), place()) == [
        {"name": "PYTHONUNBUFFERED", "value": "1"},
        {"name": "MASTER_PORT", "value": "20001"},
        {"name": "PET_MASTER_PORT", "value": "20001"},
        {"name": "MASTER_ADDR", "value": "127.0.0.1"},
        {"name": "PET_MASTER_ADDR", "value": "127.0.0.1"},
        {"name": "WORLD_SIZE", "value": "3"},
        {"name": "RANK", "value": "2"},
        {"name": "PET_NODE_RANK", "value": "2"},
        {"name": "PET_NPROC_PER_NODE", "value": "auto"},
        {"name": "PET_NNODES", "value": "3"},
    ]


@pytest.mark.parametrize(("nproc", "size"), [("auto", "3"), ("cpu", "3"), ("4", "12"), (2, "6")])
def test_the_world_is_counted_in_processes_if_their_number_is_known(nproc: str | int, size: str) -> None:
    """A word counts as one process per replica, as in the operator."""
    found = names(injected(job(nprocPerNode=nproc), place()))

    assert (found["WORLD_SIZE"], found["PET_NPROC_PER_NODE"]) == (size, str(nproc))


def test_workers_alone_get_no_address() -> None:
    """Without a master there is nobody to be addressed (#1991)."""
    found = names(injected(job(pytorchReplicaSpecs=roles(master=False)), place()))

    assert found == {"PYTHONUNBUFFERED": "1", "PET_NPROC_PER_NODE": "auto", "PET_NNODES": "2"}


def test_an_elastic_job_is_told_its_range_and_rendezvous() -> None:
    """The defaults of the operator: c10d, and as many workers as there are."""
    found = names(injected(job(pytorchReplicaSpecs=roles(master=False), elasticPolicy={}), place()))

    assert found == {
        "PYTHONUNBUFFERED": "1",
        "PET_NPROC_PER_NODE": "auto",
        "PET_RDZV_ENDPOINT": "127.0.0.1:20002",
        "PET_RDZV_BACKEND": "c10d",
        "PET_NNODES": "2:2",
    }


@pytest.mark.parametrize(
    ("policy", "endpoint"),
    [
        ({"rdzvHost": "j-worker-0", "rdzvPort": 29400}, "127.0.0.1:20002"),
        ({"rdzvHost": "localhost", "rdzvPort": 29400}, "127.0.0.1:20002"),
        ({"rdzvHost": "etcd.infra", "rdzvPort": 2379}, "etcd.infra:2379"),
        ({"rdzvHost": "etcd.infra"}, "etcd.infra:23456"),
    ],
)
def test_a_rendezvous_elsewhere_stays_elsewhere(policy: dict[str, Any], endpoint: str) -> None:
    """One in the job's own pods is here, at a port that no other job has."""
    found = names(injected(job(elasticPolicy=policy), place()))

    assert found["PET_RDZV_ENDPOINT"] == endpoint


def test_all_parts_of_an_elastic_policy_are_told() -> None:
    """Empty parts are not."""
    conf = [{"key": "a", "value": "1"}, {"key": "b", "value": "2"}]
    policy = {"rdzvBackend": "etcd", "maxRestarts": 0, "nProcPerNode": 4, "rdzvId": "id", "rdzvConf": conf}

    found = names(injected(job(elasticPolicy={**policy, "standalone": True, "minReplicas": 1}), place()))

    expected = {
        "PET_RDZV_BACKEND": "etcd",
        "PET_MAX_RESTARTS": "0",
        "PET_NPROC_PER_NODE": "4",
        "PET_RDZV_ID": "id",
        "PET_RDZV_CONF": "a=1,b=2",
        "PET_STANDALONE": "",
        "PET_NNODES": "1:1",
    }
    assert expected.items() <= found.items()


@pytest.mark.parametrize(
    ("host", "own"), [("j-master-0", True), ("j-worker-12.ns.svc", True), ("::1", True), ("k-worker-0", False)]
)
def test_a_host_of_the_job_is_here(host: str, own: bool) -> None:  # noqa: FBT001 - a table
    """Pods' names and loopback."""
    assert is_own_host(job(), host) is own


@each_row(
    ("text", "expanded"),
    [
        ("$(A)/x", "1/x"),
        ("$(A)$(B)", "1$(B)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$A ${A} $(A", "$A ${A} $(A"),
        ("$()", "$()"),
    ],
)
def test_references_are_expanded_as_the_kubelet_does(text: str, expanded: str) -> None:
    """What is unknown stays as it was written."""
    assert expand(text, {"A": "1"}) == expanded


def test_values_come_from_where_they_are_referred_to() -> None:
    """In order: `envFrom` first, later entries see earlier ones, the last of a name wins."""
    container = {
        "envFrom": [{"prefix": "C_", "configMapRef": {"name": "m"}}, {"secretRef": {"name": "s"}}],
        "env": [
            {"name": "PLAIN", "value": "$(C_mode)"},
            {"name": "LATER", "value": "$(AFTER)"},
            {"name": "AFTER", "value": "a"},
            {"name": "AFTER", "value": "b$(AFTER)"},
            {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {"name": "MAPPED", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "mode"}}},
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "NOLABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['x']"}}},
            {"name": "EMPTY"},
        ],
    }

    found = resolve(container, stores=STORES, fields={"metadata.name": "j-master-0"})

    assert found == {
        "C_mode": "fast",
        "C_9": "n",
        "k": "hidden",
        "PLAIN": "fast",
        "LATER": "$(AFTER)",
        "AFTER": "ba",
        "SECRET": "hidden",
        "MAPPED": "fast",
        "POD": "j-master-0",
        "NOLABEL": "",
        "EMPTY": "",
    }


def test_what_is_optional_may_be_absent() -> None:
    """A key, or a whole secret or config map."""
    container = {
        "envFrom": [{"secretRef": {"name": "none", "optional": True}}],
        "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "none", "optional": True}}}],
    }

    assert resolve(container, stores=STORES, fields={}) == {}


@pytest.mark.parametrize(
    ("container", "words"),
    [
        (
            {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "x"}}}]},
            "env.A..*secretKeyRef.*'s/x'",
        ),
        ({"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "x", "key": "k"}}}]}, "configMapKeyRef"),
        ({"envFrom": [{"secretRef": {"name": "none"}}]}, r"envFrom\[0\].secretRef.*'none'.*configured here.*: s"),
    ],
)
def test_what_is_absent_is_named(container: dict[str, Any], words: str) -> None:
    """With its field, its name, what there is, and no value."""
    with pytest.raises(InvalidSpec, match=words) as caught:
        resolve(container, stores=STORES, fields={})

    assert "hidden" not in str(caught.value)


@each_row(
    ("source", "secrets", "config_maps"),
    [
        ({"secretKeyRef": {"name": "s", "key": "k"}}, {"s": {"k": "hidden"}}, {}),
        ({"secretKeyRef": {"name": "no", "key": "k", "optional": True}}, {}, {}),
        ({"secretRef": {"name": "s"}}, {"s": {"k": "hidden", "bad name": "x"}}, {}),
        ({"configMap": {"name": "m"}}, {}, {"m": {"mode": "fast", "9": "n"}}),
        (
            {"secret": {"secretName": "s", "items": [{"key": "k", "path": "p"}]}},
            {"s": {"k": "hidden", "bad name": "x"}},
            {},
        ),
        ({"configMapRef": {"name": "no", "optional": True}}, {}, {}),
    ],
)
def test_only_what_is_referred_to_is_handed_on(
    source: dict[str, Any], secrets: dict[str, Any], config_maps: dict[str, Any]
) -> None:
    """The supervisor of a job knows the job's secrets and no others."""
    assert STORES.only(source, "field") == Stores(secrets=secrets, config_maps=config_maps)


def test_a_file_of_a_key_that_is_absent_is_refused() -> None:
    """Unless it is optional."""
    items = [{"key": "gone", "path": "p"}]

    with pytest.raises(InvalidSpec, match="'s/gone'"):
        STORES.only({"secret": {"secretName": "s", "items": items}}, "volumes[0]")

    assert STORES.only({"secret": {"secretName": "s", "items": items, "optional": True}}, "v").secrets


def test_replicas_are_counted_over_all_roles() -> None:
    """One where no number is written."""
    assert total_replicas(job()["spec"]) == 3
