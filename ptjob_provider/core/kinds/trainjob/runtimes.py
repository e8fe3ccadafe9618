"""Resolve the runtime that a TrainJob names: the cluster's, or its namespace's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.kinds.kind import Runtime
from ptjob_provider.core.kinds.trainjob.template import template_of
from ptjob_provider.core.kinds.trainjob.words import STEP, pod_template_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.identity import Manifest

_GROUP = "trainer.kubeflow.org"
_OF_CLUSTER, _OF_NAMESPACE = "ClusterTrainingRuntime", "TrainingRuntime"


def reference(text: str | None) -> Manifest | None:
    """Parse a runtime's name: `NAME` for the cluster's, `TrainingRuntime/NAME` for one of the namespace.

    Raises:
        InvalidSpec: it is neither.
    """
    if text is None:
        return None
    kind, slash, name = text.rpartition("/")
    if slash and kind not in {_OF_CLUSTER, _OF_NAMESPACE}:
        raise InvalidSpec.of("runtime", text, f"NAME, {_OF_NAMESPACE}/NAME or {_OF_CLUSTER}/NAME")
    return {"kind": kind, "name": name} if slash else {"name": name}


def runtime_of(manifest: Mapping[str, Any]) -> Runtime | None:
    """Return the runtime that a job names; None if it is of another group."""
    named = manifest["spec"]["runtimeRef"]
    kind = named.get("kind") or _OF_CLUSTER
    inits = template_of(manifest["spec"])["spec"].get("initContainers") or ()
    is_known = (named.get("apiGroup") or _GROUP) == _GROUP and kind in {_OF_CLUSTER, _OF_NAMESPACE}
    names = tuple(str(each.get("name")) for each in inits)
    return Runtime(kind=kind, name=str(named.get("name")), init_containers=names) if is_known else None


def init_containers(runtime: Mapping[str, Any]) -> set[str]:
    """Return the names of the init containers that a runtime's object gives the training pods."""
    template = (runtime.get("spec") or {}).get("template") or {}
    steps = (template.get("spec") or {}).get("replicatedJobs") or ()
    pods = (pod_template_of(step).get("spec") or {} for step in steps if step.get("name") == STEP)
    return {str(each.get("name")) for pod in pods for each in pod.get("initContainers") or ()}
