"""List the rights that jobs and commands need, and which folder of `deploy/` grants each. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ptjob_provider.core.kinds import DEFAULT, KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CLUSTER_VIEW = "deploy/components/cluster-view"
ROLE = "deploy/base"
OTHER_KINDS = "deploy/components/kinds"
RUNTIME_LISTS = "deploy/components/runtimes"
CODE = "deploy/components/code"
QUEUE = "deploy/components/queue"
TENSORBOARD = "deploy/components/tensorboard"
ARENA = "deploy/components/arena"
DATA = "deploy/components/data"
USAGE = "deploy/components/usage"


@dataclass(frozen=True)
class Right:
    """Permission for one verb on one resource, in the namespace or in the whole cluster.

    Attributes:
        group: API group; "" for the core group.
        resource: plural name, with a subresource after a slash.
        verb: the RBAC verb.
        given_by: folder of the Kustomize base or component that grants it.
        what_for: what fails without it; "" if no job can run without it.
    """

    group: str
    resource: str
    verb: str
    given_by: str
    what_for: str = ""

    @property
    def is_cluster_wide(self) -> bool:
        """Return whether a ClusterRole grants it for the whole cluster."""
        return self.given_by in {CLUSTER_VIEW, RUNTIME_LISTS}


def _rights(group: str, resource: str, *verbs: str, given_by: str = ROLE) -> tuple[Right, ...]:
    return tuple(Right(group, resource, verb, given_by) for verb in verbs)


OF_JOBS: Mapping[str, Sequence[Right]] = {
    name: _rights(
        kind.API_VERSION.partition("/")[0],
        kind.PLURAL,
        *("create", "get", "list", "watch", "patch", "delete"),
        given_by=ROLE if kind is DEFAULT else OTHER_KINDS,
    )
    for name, kind in KINDS.items()
}
"""Rights that jobs of a kind need: kind → rights."""

OF_PODS: Sequence[Right] = (
    *_rights("", "pods", "get", "list", "watch", "create", "delete"),
    *_rights("", "pods/log", "get"),
    *_rights("", "events", "list"),
    *_rights("", "persistentvolumeclaims", "get", "list", "watch"),
)
"""Rights that jobs of every kind need."""

_TRAINER = "trainer.kubeflow.org"
_RUNTIME = "whether the {} of a TrainJob exists, and which of its pods train"
RUNTIMES: Sequence[Right] = (
    Right(_TRAINER, "trainingruntimes", "list", OTHER_KINDS, _RUNTIME.format("TrainingRuntime")),
    Right(_TRAINER, "clustertrainingruntimes", "list", RUNTIME_LISTS, _RUNTIME.format("ClusterTrainingRuntime")),
)
"""Rights for reading the runtime of a TrainJob."""

EXEC = Right("", "pods/exec", "create", DATA, "`ptjob data ls` and `cp`, and a folder of over 16 MB as code")
"""Right to read and write the files on claims."""

USEFUL: Sequence[Right] = (
    Right("", "configmaps", "create", ARENA, "`arena delete` of our jobs"),
    Right("", "persistentvolumeclaims", "create", DATA, "`ptjob data create`"),
    EXEC,
    Right("metrics.k8s.io", "pods", "list", USAGE, "use of CPU and memory in `ptjob top job` and in results"),
    Right("", "nodes", "list", CLUSTER_VIEW, "`ptjob top node`"),
    Right("", "pods", "list", CLUSTER_VIEW, "requested resources in `ptjob top node`"),
    Right("", "secrets", "create", CODE, "a folder as code, and credentials as plain values"),
    Right("apps", "deployments", "create", TENSORBOARD, "a TensorBoard beside a job: its Deployment"),
    Right("", "services", "create", TENSORBOARD, "a TensorBoard beside a job: its Service"),
    Right("", "pods/portforward", "create", TENSORBOARD, "`ptjob tensorboard`"),
)
"""Rights that few jobs need, and commands of `ptjob`, Arena and the peak usage of jobs; of the component for
TensorBoard one verb per resource."""

KUEUE_GROUP = "kueue.x-k8s.io"
QUEUES: Sequence[Right] = (Right(KUEUE_GROUP, "workloads", "list", QUEUE, "why a job waits in a queue of Kueue"),)
"""Rights in the component for queues."""

_LACKING = re.compile(r'cannot (\w+) resource "([^"]+)" in API group "([^"]*)"( at the cluster scope)?')


def folder_that_grants(message: str) -> str:
    """Return the folder of `deploy/` that grants the right whose absence the API server reports; "" if none is known.

    Args:
        message: the message of a 403, as Kubernetes words it (`pkg/endpoints/handlers/responsewriters/errors.go`).
    """
    found = _LACKING.search(message)
    if found is None:
        return ""
    verb, resource, group, scope = found.groups()
    all_rights = (*sum(map(tuple, OF_JOBS.values()), ()), *OF_PODS, *RUNTIMES, *USEFUL, *QUEUES)
    lacking = (group, resource, verb, bool(scope))
    matching = (each for each in all_rights if (each.group, each.resource, each.verb, each.is_cluster_wide) == lacking)
    return next((each.given_by for each in matching), "")
