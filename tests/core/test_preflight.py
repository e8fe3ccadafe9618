"""Tests of the checks of `ptjob doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from api_server_stand_in import stand_in_api_server
from ptjob_provider.core import kinds
from ptjob_provider.core.kubernetes import ClusterConfig
from ptjob_provider.core.kubernetes.client.http import shared_client
from ptjob_provider.core.kubernetes.preflight import (
    check_up,
    controller_check,
    controllers,
    kind_check,
    needed_rights,
    permission_checks,
    useful_rights,
)
from ptjob_provider.core.kubernetes.rights import (
    QUEUES,
    RUNTIMES,
    TENSORBOARD,
    USEFUL,
    Right,
)
from rbac import BASE, COMPONENTS, FOLDERS, objects_in, rules_in
from rows import each_row

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from ptjob_provider.core.inspector import Check

pytestmark = pytest.mark.skips_waits

KINDS = f"{COMPONENTS}/kinds"
ALL = [*needed_rights(["PyTorchJob"]), *useful_rights(["PyTorchJob"])]


def rules(folder: str, kind: str = "Role") -> set[tuple[str, str, str]]:
    """Return each (group, resource, verb) that the base or a component grants."""
    return {
        (group, resource, verb)
        for rule in rules_in(folder, kind)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_needed_rights_are_those_of_the_base_role() -> None:
    """Binding the base Role is therefore enough."""
    assert plain(needed_rights(["PyTorchJob"])) == rules(BASE)


def plain(rights: Iterable[Right]) -> set[tuple[str, str, str]]:
    """Return group, resource and verb of each right."""
    return {(right.group, right.resource, right.verb) for right in rights}


def test_the_rights_that_other_kinds_need_are_those_of_their_roles() -> None:
    others, pods = needed_rights(["TrainJob", "PyTorchTrainingJob"]), needed_rights([])
    given = rules(KINDS)

    assert plain(others) - plain(pods) == given - plain(RUNTIMES)
    assert plain(right for right in RUNTIMES if not right.is_cluster_wide) == given & plain(RUNTIMES)
    assert set(RUNTIMES) <= set(useful_rights(["TrainJob"]))
    assert not set(RUNTIMES) & set(useful_rights(["PyTorchJob"]))


def test_beside_the_default_kind_the_rights_of_another_are_not_required() -> None:
    """One line says whether jobs of the other kind are allowed, and which component grants it."""
    both = useful_rights(["PyTorchJob", "TrainJob"])

    assert needed_rights(["PyTorchJob", "TrainJob"]) == needed_rights(["PyTorchJob"])
    [further] = [right for right in both if right.resource == "trainjobs"]
    assert (further.verb, further.given_by) == ("create", "deploy/components/kinds")


def test_rights_of_queues_are_useful_where_queues_are_served() -> None:
    """The others are useful on every cluster."""
    assert {*USEFUL, *QUEUES} <= set(useful_rights([]))
    assert not set(QUEUES) & set(useful_rights([], has_queues=False))


@each_row("folder", sorted({right.given_by for right in (*USEFUL, *RUNTIMES, *QUEUES)} - {KINDS, TENSORBOARD}))
def test_each_useful_right_is_given_by_the_component_that_the_advice_names(folder: str) -> None:
    """Cluster-wide rights come from its ClusterRole, all others from its Role.

    `pods/exec get` is excluded: clusters older than 1.35 check it for the web socket's GET instead of `create`.
    """
    rights = [right for right in (*USEFUL, *RUNTIMES, *QUEUES) if right.given_by == folder]

    for kind, is_cluster_wide in (("Role", False), ("ClusterRole", True)):
        named = plain(right for right in rights if right.is_cluster_wide == is_cluster_wide)
        assert named == rules(folder, kind) - {("", "pods/exec", "get")}


def test_the_rights_for_a_tensorboard_are_those_of_its_role() -> None:
    """One verb per resource represents all rights of the Role, and the advice names its folder."""
    given = rules(f"{COMPONENTS}/tensorboard")
    rights = [right for right in USEFUL if right.given_by == TENSORBOARD]
    asked = plain(rights)

    assert asked <= given
    assert {part[:2] for part in asked} == {part[:2] for part in given}


@each_row("folder", FOLDERS)
def test_no_documented_role_reaches_beyond_the_namespaces_jobs(folder: str) -> None:
    """Cluster-wide, `list` is the only verb; no role grants wildcards, nodes or listing Secrets.

    `get` on `nodes/proxy` allows running commands in any pod through its kubelet.
    """
    every = rules(folder) | rules(folder, "ClusterRole")

    assert {verb for _, _, verb in rules(folder, "ClusterRole")} <= {"list"}
    assert {"nodes/proxy", "serviceaccounts/token", "pods/attach"}.isdisjoint(resource for _, resource, _ in every)
    assert "*" not in {part for right in every for part in right}
    assert not {("", "secrets", verb) for verb in ("list", "watch", "patch", "update")} & every
    assert {"rbac.authorization.k8s.io", "impersonate"}.isdisjoint(part for right in every for part in right)


@each_row("folder", FOLDERS)
def test_each_role_is_bound_to_the_account_of_the_base(folder: str) -> None:
    """The only exception is Kubeflow's own account for pipeline steps."""
    found = objects_in(folder)
    roles = {(each["kind"], each["metadata"]["name"]) for each in found if each["kind"].endswith("Role")}
    bindings = [each for each in found if each["kind"].endswith("Binding")]
    account = "pipeline-runner" if folder.endswith("/pipelines-step") else "ptjob"

    assert len(roles) == len(bindings) == 1
    assert {(each["roleRef"]["kind"], each["roleRef"]["name"]) for each in bindings} == roles
    assert [each["subjects"] for each in bindings] == [[{"kind": "ServiceAccount", "name": account}]]


def test_missing_rights_are_named_in_one_line_and_useful_ones_each() -> None:
    """An administrator gets all required rights in one sentence."""
    missing = {right for right in needed_rights(["PyTorchJob"]) if right.resource == "pods/log"} | {
        USEFUL[0],
        USEFUL[4],
    }
    allowed = {right: right not in missing for right in ALL}

    needed, *useful = permission_checks("ml", allowed)
    complete = permission_checks("ml", dict.fromkeys(allowed, True))

    assert (needed.is_good, needed.result) == (False, "missing: pods/log get")
    assert needed.advice == "have the Role of deploy/base bound to you"
    assert useful[0].result == "missing: configmaps create"
    assert useful[4].result == "missing: nodes list in the whole cluster"
    assert useful[4].advice == "if it is wanted: the ClusterRole of deploy/components/cluster-view"
    assert all(check.is_good for check in complete)


def of_trainer(*fields: str) -> list[Any]:
    """Return the responses of a cluster that serves only TrainJobs, or no kind if no fields are given."""
    properties = {"spec": {"properties": {name: {} for name in fields}}}
    kind = {"group": "trainer.kubeflow.org", "version": "v1alpha1", "kind": "TrainJob"}
    schemas = {"t": {"x-kubernetes-group-version-kind": [kind], "properties": properties}}
    served = {"apis/trainer.kubeflow.org/v1alpha1": {"serverRelativeURL": "/openapi/v3/t"}} if fields else {}
    document = [(200, {"components": {"schemas": schemas}})] if fields else []
    index = (200, {"paths": served})
    return [(200, {"gitVersion": "v1"}), index, index, *document, index]


async def checks_of(*answers: Any) -> dict[str, Check]:
    """Return what is said about a server with these answers."""
    async with stand_in_api_server(*answers) as server, shared_client(server.config()) as client:
        return {check.about: check for check in await check_up(client, "ml")}


async def test_a_cluster_on_which_only_trainer_is_installed_is_good() -> None:
    """Only the rights for its kind are checked, and the training-operator is not required."""
    checks = await checks_of(*of_trainer("runtimeRef"))

    [missing] = [check for check in checks.values() if check.is_good is False]
    assert missing.about == "permissions in ml"
    assert "trainjobs create" in missing.result
    assert "pytorchjobs" not in missing.result
    assert missing.advice == "have the Role of deploy/components/kinds and of deploy/base bound to you"
    assert {"training-operator", "why a job waits in a queue of Kueue"}.isdisjoint(checks)
    assert {"Kubeflow Trainer", "JobSet"} <= set(checks)


@pytest.mark.parametrize(
    "answer", [(200, {"paths": {"apis/kueue.x-k8s.io/v1beta2": {}}}), 403], ids=["served", "untold"]
)
async def test_kueue_is_checked_unless_it_is_known_to_be_absent(answer: Any) -> None:
    checks = await checks_of(*of_trainer(), answer)

    assert checks["why a job waits in a queue of Kueue"].result == "missing: workloads list"
    assert checks["Kueue"].result == (
        "no pod with the label app.kubernetes.io/name=kueue,control-plane=controller-manager is seen"
    )


async def test_a_configuration_that_cannot_be_used_says_itself_what_to_do(tmp_path: Path) -> None:
    """The server was not asked, so nothing is advised about it."""
    (tmp_path / "config").write_text("clusters: []")
    async with shared_client(ClusterConfig(kube_config_path=str(tmp_path / "config"))) as client:
        [refused] = await check_up(client, "ml")

    [unknown] = (await checks_of(*[401] * 5)).values()

    assert (refused.is_good, refused.advice) == (False, "")
    assert "kubectl cluster-info" in unknown.advice


async def test_a_cluster_that_serves_no_kind_is_not_good() -> None:
    """One check reports it and lists what can be installed."""
    none = (await checks_of(*of_trainer()))["kinds of jobs"]

    assert (none.is_good, none.result) == (False, "none is served")
    assert "Kubeflow Trainer" in none.advice


def controller(image: str = "", *, is_ready: bool = True) -> dict[str, Any]:
    status = {"conditions": [{"type": "Ready", "status": str(is_ready)}]}
    meta = {"name": "op", "namespace": "k"}
    return {"metadata": meta, "spec": {"containers": [{"image": image}]}, "status": status}


@each_row(
    ("pods", "is_good", "said"),
    [
        ([], None, "no pod with the label control-plane=kubeflow-training-operator is seen"),
        ([controller(is_ready=False)], False, "k/op is not ready"),
        ([controller(is_ready=False), controller()], True, "k/op is ready"),
        ([controller("ghcr.io/kubeflow/controller-manager:v2.3.0")], True, "k/op is ready, version v2.3.0"),
        ([controller("registry:5000/kueue:v0.18.4@sha256:" + 64 * "a")], True, "k/op is ready, version v0.18.4"),
        ([controller("registry:5000/kueue@sha256:" + 64 * "a")], True, "k/op is ready"),
    ],
)
def test_a_controller_is_ready_or_not_or_not_to_be_seen(pods: list[Any], is_good: bool | None, said: str) -> None:  # noqa: FBT001 - a row
    """Its version is its image's tag."""
    check = controller_check("training-operator", pods)

    assert (check.is_good, check.result) == (is_good, said)
    assert check.advice.startswith("jobs get no pods, or wait in their queue, until it runs") is (is_good is False)


def test_the_controllers_of_what_is_served_are_looked_at() -> None:
    def looked_at(*, has_queues: bool = False, **fields: set[str]) -> list[str]:
        found = {name: kind_check(kind, fields.get(name, ())) for name, kind in kinds.KINDS.items()}
        return controllers(found, has_queues=has_queues)

    assert looked_at() == []
    assert looked_at(has_queues=True) == ["Kueue"]
    assert looked_at(PyTorchJob={"runPolicy"}) == ["training-operator"]
    assert looked_at(PyTorchJob={"pytorchReplicaSpecs"}) == ["old PyTorch operator"]
    assert looked_at(TrainJob={"runtimeRef"}) == ["Kubeflow Trainer", "JobSet"]
    assert looked_at(PyTorchTrainingJob={"replicaSpecs"}) == []


@each_row(
    ("kind", "fields", "said", "is_good"),
    [
        ("PyTorchJob", {"pytorchReplicaSpecs", "runPolicy"}, "served", True),
        (
            "PyTorchJob",
            {"pytorchReplicaSpecs"},
            "served by the CRD of the old PyTorch operator, which has no runPolicy",
            None,
        ),
        ("PyTorchJob", (), "not served", None),
        ("TrainJob", {"trainer", "runtimePatches"}, "served, with the fields of Trainer 2.2 or newer", True),
        ("TrainJob", {"trainer", "podTemplateOverrides"}, "served, with the fields of Trainer 2.1", None),
        ("TrainJob", {"trainer", "podSpecOverrides"}, "served, with the fields of Trainer 2.0", None),
        ("TrainJob", {"trainer", "runtimeRef"}, "served", True),
    ],
)
def test_a_kind_is_served_or_not_or_by_an_older_operator(
    kind: str,
    fields: Collection[str],
    said: str,
    is_good: bool | None,  # noqa: FBT001 - a row
) -> None:
    """No single kind is required; an older operator refuses some fields."""
    check = kind_check(kinds.named(kind), fields)

    assert (check.result, check.is_good) == (said, is_good)
    assert bool(check.advice) == (is_good is None and bool(fields))
