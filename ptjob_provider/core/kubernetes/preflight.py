"""Check what jobs need on a cluster: served kinds, permissions, controllers and their versions."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import ClusterError, InvalidSpec, PTJobError
from ptjob_provider.core.inspector import Check
from ptjob_provider.core.kinds import DEFAULT, KINDS
from ptjob_provider.core.kinds.trainjob import NEWEST, version_of
from ptjob_provider.core.kubernetes import discovery
from ptjob_provider.core.kubernetes.pods import is_ready
from ptjob_provider.core.kubernetes.rights import (
    CLUSTER_VIEW,
    KUEUE_GROUP,
    OF_JOBS,
    OF_PODS,
    QUEUES,
    RUNTIMES,
    USEFUL,
    Right,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kinds import Kind
    from ptjob_provider.core.kubernetes.client.http import Client


CONTROLLERS = {
    "training-operator": "control-plane=kubeflow-training-operator",
    "old PyTorch operator": "name=pytorch-operator",
    "Kubeflow Trainer": "app.kubernetes.io/name in (trainer,kubeflow-trainer),app.kubernetes.io/component=manager",
    "JobSet": "app.kubernetes.io/name=jobset",
    "Kueue": "app.kubernetes.io/name=kueue,control-plane=controller-manager",
}
"""Controllers that jobs need: common name → label selector of its pods, in any namespace."""


async def check_controller(client: Client, name: str) -> Check:
    """Check whether the controller runs, if its pods may be listed."""
    try:
        return controller_check(name, await client.items("/api/v1/pods", labelSelector=CONTROLLERS[name]))
    except ClusterError:
        advice = f"to see it takes `pods list` in the whole cluster: the ClusterRole of {CLUSTER_VIEW}"
        return Check(about=name, is_good=None, result="cannot be read", advice=advice)


def controller_check(about: str, pods: Sequence[Manifest]) -> Check:
    """Return the result of the check whether the controller of this name runs, from its pods."""
    if not pods:
        message = f"no pod with the label {CONTROLLERS[about]} is seen"
        advice = "if jobs get no status, ask the cluster's administrator"
        return Check(about=about, is_good=None, result=message, advice=advice)
    ready = [pod for pod in pods if is_ready(pod)]
    names = ", ".join(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in ready or pods)
    versions = ", ".join(dict.fromkeys(filter(None, map(_version, ready or pods))))
    version = f", version {versions}" if versions else ""
    if ready:
        return Check(about=about, is_good=True, result=f"{names} is ready{version}")
    advice = "jobs get no pods, or wait in their queue, until it runs: kubectl describe and logs of it say why"
    return Check(about=about, is_good=False, result=f"{names} is not ready{version}", advice=advice)


def _version(pod: Mapping[str, Manifest]) -> str:
    """Return the image tag of the first container; "" if the image has no tag, such as with a digest alone."""
    containers = (pod.get("spec") or {}).get("containers") or [{}]
    name, _, _ = str(containers[0].get("image") or "").partition("@")
    _, _, tag = name.rpartition("/")[2].partition(":")
    return tag


_NOT_SERVED = "not served"
_OF_OLD_OPERATOR = "served by the CRD of the old PyTorch operator"
_NONE_IS_SERVED = Check(
    about="kinds of jobs",
    is_good=False,
    result="none is served",
    advice=f"have one of these installed: {', '.join(kind.OPERATOR for kind in KINDS.values())}",
)

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


async def check_up(client: Client, namespace: str) -> list[Check]:
    """Return the results of all checks, the most important first; a missing response is a result, too."""
    try:
        version = await client.get("/version")
    except PTJobError as error:
        server = "see whether the kubeconfig's server is right and reachable: kubectl cluster-info"
        advice = "" if isinstance(error, InvalidSpec) else server  # a configuration that cannot be used says why
        return [Check(about="API server", is_good=False, result=str(error), advice=advice)]
    checks = [Check(about="API server", is_good=True, result=f"Kubernetes {version.get('gitVersion', 'unknown')}")]
    kinds = {name: await _kind(client, kind) for name, kind in KINDS.items()}
    served = served_kinds(kinds)
    checks += [*kinds.values(), *([] if served else [_NONE_IS_SERVED])]
    has_queues = await _has_queues(client)
    checks += await _permissions(client, namespace, served, has_queues=has_queues)
    checks += [await check_controller(client, each) for each in controllers(kinds, has_queues=has_queues)]
    return checks


def kind_check(kind: Kind, fields: Iterable[str]) -> Check:
    """Return the result of the check whether the cluster serves a kind.

    Args:
        kind: the kind.
        fields: names of the fields below `spec` in the served CRD; none if the kind is not served.
    """
    about, served = f"{kind.KIND} of {kind.API_VERSION}", set(fields)
    if not served:
        return Check(about=about, is_good=None, result=_NOT_SERVED)
    if kind.KIND == "PyTorchJob" and "runPolicy" not in served:
        message = f"{_OF_OLD_OPERATOR}, which has no runPolicy"
        advice = "have the training-operator installed, 1.4 or newer"
        return Check(about=about, is_good=None, result=message, advice=advice)
    if kind.KIND == "TrainJob" and (version := version_of(served)):
        is_new = version == NEWEST
        limits = f"docs/reference/kinds.md has the fields that want Trainer {NEWEST}; they are refused here"
        advice = "" if is_new else limits
        message = f"served, with the fields of Trainer {version}"
        return Check(about=about, is_good=True if is_new else None, result=message, advice=advice)
    return Check(about=about, is_good=True, result="served")


def served_kinds(checks: Mapping[str, Check]) -> list[str]:
    """Return the names of the kinds that are served, or that may be because the check failed."""
    return [name for name, check in checks.items() if check.result != _NOT_SERVED]


def controllers(checks: Mapping[str, Check], *, has_queues: bool) -> list[str]:
    """Return the names of the controllers that create pods of the served kinds and release jobs from queues."""
    served = served_kinds(checks)
    of_default = "old PyTorch operator" if _OF_OLD_OPERATOR in checks[DEFAULT.KIND].result else "training-operator"
    return [
        *([of_default] if DEFAULT.KIND in served else []),
        *(["Kubeflow Trainer", "JobSet"] if "TrainJob" in served else []),
        *(["Kueue"] if has_queues else []),
    ]


def needed_rights(served: Iterable[str]) -> list[Right]:
    """Return the required rights: those of the default kind, or of all served kinds if it is not served."""
    names = list(served)
    main = [DEFAULT.KIND] if DEFAULT.KIND in names else names
    return [*(right for name in main for right in OF_JOBS[name]), *OF_PODS]


def useful_rights(served: Iterable[str], *, has_queues: bool = True) -> list[Right]:
    """Return the optional rights, each with what fails without it; of each further kind only one right."""
    names = list(served)
    further = [name for name in names if name != DEFAULT.KIND and DEFAULT.KIND in names]
    others = [replace(OF_JOBS[name][0], what_for=f"jobs of kind {name}") for name in further]
    runtimes, queues = RUNTIMES if "TrainJob" in names else (), QUEUES if has_queues else ()
    return [*USEFUL, *others, *runtimes, *queues]


def permission_checks(namespace: str, allowed: Mapping[Right, bool]) -> list[Check]:
    """Return one result for all required rights together, and one for each optional right."""
    required = [right for right in allowed if not right.what_for]
    missing = [right for right in required if not allowed[right]]
    folders = " and of ".join(dict.fromkeys(right.given_by for right in missing))
    names = ", ".join(f"{right.resource} {right.verb}" for right in missing)
    check = Check(
        about=f"permissions in {namespace}",
        is_good=not missing,
        result=f"missing: {names}" if missing else f"all {len(required)} that jobs need",
        advice=f"have the Role of {folders} bound to you" if missing else "",
    )
    optional = {right: is_allowed for right, is_allowed in allowed.items() if right.what_for}
    return [check, *(_optional_check(right, is_allowed=is_allowed) for right, is_allowed in optional.items())]


async def _kind(client: Client, kind: Kind) -> Check:
    manifest: Manifest = {"apiVersion": kind.API_VERSION, "kind": kind.KIND}
    try:
        return kind_check(kind, await discovery.spec_fields(client, manifest))
    except ClusterError as error:
        return Check(about=f"{kind.KIND} of {kind.API_VERSION}", is_good=None, result=str(error))


async def _has_queues(client: Client) -> bool:
    """Return whether the cluster serves Kueue's API; True if this cannot be read."""
    try:
        return KUEUE_GROUP in await discovery.groups(client)
    except ClusterError:
        return True


async def _permissions(client: Client, namespace: str, served: Sequence[str], *, has_queues: bool) -> list[Check]:
    rights = [*needed_rights(served), *useful_rights(served, has_queues=has_queues)]
    try:
        allowed = await asyncio.gather(*(is_allowed(client, namespace, right) for right in rights))
    except (ClusterError, InvalidSpec) as error:
        return [Check(about=f"permissions in {namespace}", is_good=None, result=str(error))]
    return permission_checks(namespace, dict(zip(rights, allowed, strict=True)))


async def is_allowed(client: Client, namespace: str, right: Right) -> bool:
    """Return whether the account of these credentials has the right, by a SelfSubjectAccessReview."""
    resource, _, sub = right.resource.partition("/")
    attributes: dict[str, Any] = {"group": right.group, "resource": resource, "verb": right.verb}
    if sub:
        attributes["subresource"] = sub
    if not right.is_cluster_wide:
        attributes["namespace"] = namespace
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    response = await client.post(_REVIEWS, review)
    return bool((response.get("status") or {}).get("allowed"))


def _optional_check(right: Right, *, is_allowed: bool) -> Check:
    about = right.what_for
    if is_allowed:
        return Check(about=about, is_good=True, result="allowed")
    where = "ClusterRole" if right.is_cluster_wide else "Role"
    message = f"missing: {right.resource} {right.verb}" + (" in the whole cluster" if right.is_cluster_wide else "")
    return Check(about=about, is_good=None, result=message, advice=f"if it is wanted: the {where} of {right.given_by}")
