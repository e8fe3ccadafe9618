"""Merge all requests for a role's pods into one pod template.

Layers from the lowest to the highest: our defaults for typed fields, the installation's template, the job's
`pod_template`, its manifest, its typed fields.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from ptjob_provider.core.kinds import podtemplate
from ptjob_provider.core.kinds.layers import laid_over
from ptjob_provider.core.kinds.ours import NO_ISTIO
from ptjob_provider.core.kinds.podshape import check_pod_shape, with_training_container
from ptjob_provider.core.spec.resources import DEFAULT_SHARED_MEMORY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.spec import TrainingJob
    from ptjob_provider.core.spec.job import Role


def pods_asked_for(
    own: Manifest, job: TrainingJob, under: TrainingJob | None, *, role: Role, container: str
) -> Manifest:
    """Return the template of one role's pods.

    Args:
        own: their template in the manifest, or in the kind's own fields.
        job: the specification.
        under: the installation's template.
        role: the role.
        container: the name of the training container.
    """
    lower = [*_of_installation(under, role, container), *_of_pods(job.pod_template, container)]
    typed = job if job.manifest is not None else _with_defaults(job)
    layers = [*lower, own] if job.manifest is not None else [_defaults(container), own, *lower]
    return podtemplate.overlaid(reduce(laid_over, layers), typed, typed.role(role), container=container)


def changed(template: Manifest, change: Callable[[Manifest], Manifest], *, name: str, namespace: str) -> Manifest:
    """Return the template after a change of its pod of this name."""
    names = {"name": name, "namespace": namespace}
    meta = {**(template.get("metadata") or {}), **names}
    pod = change({"apiVersion": "v1", "kind": "Pod", **template, "metadata": meta})
    kept = {key: part for key, part in pod["metadata"].items() if key not in names}
    return {"metadata": kept, "spec": pod["spec"]}


def _defaults(container: str) -> Manifest:
    return {"metadata": {"annotations": NO_ISTIO}, "spec": {"containers": [{"name": container}]}}


def _with_defaults(job: TrainingJob) -> TrainingJob:
    return job if job.shared_memory is not None else replace(job, shared_memory=DEFAULT_SHARED_MEMORY)


def _of_installation(template: TrainingJob | None, role: Role, container: str) -> Iterator[Manifest]:
    if template is None:
        return
    yield from _of_pods(template.pod_template, container)
    bare = {"spec": {"containers": [{"name": container}]}}
    yield podtemplate.overlaid(bare, template, template.role(role), container=container)


def _of_pods(template: Manifest | None, container: str) -> Iterator[Manifest]:
    if template is None:
        return
    pod = {
        **template["spec"],
        "containers": with_training_container(template["spec"].get("containers") or [], container),
    }
    check_pod_shape("pod_template.spec", pod)
    yield {**template, "spec": pod}
