"""Convert to the old PyTorch operator's PyTorchJob: `kubeflow.org/v1` too, without `runPolicy`.

Arena still installs that CRD. It has the run policy's fields at the top of the spec, and a server that prunes silently
would drop a `runPolicy`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.identity import Manifest

_AT_THE_TOP = {"cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit"}
_FIELDS = {
    "suspend": "suspend",
    "schedulingPolicy": "gang",
    "elasticPolicy": "elastic_policy",
    "nprocPerNode": "nproc_per_node",
}
_RUN_POLICY = "runPolicy"
_WHY_NOT = (
    "this cluster has the CRD of the old PyTorch operator, which cannot say it; leave it out, or have the "
    "training-operator installed"
)


def is_older(job: Mapping[str, Any]) -> bool:
    """Return whether the job's object is the old PyTorch operator's: with run policy fields at the top of its spec.

    Other servers have no such fields there. A job without any of them counts as the training-operator's.
    """
    return bool(_AT_THE_TOP & (job.get("spec") or {}).keys())


def in_words_of(manifest: Manifest, fields: frozenset[str]) -> Manifest:
    """Return the job, or a patch, converted for a server with these fields in a PyTorchJob's spec.

    Raises:
        InvalidSpec: a part has no equivalent; the text names the field.
    """
    spec = manifest.get("spec") or {}
    if not fields or _RUN_POLICY in fields:
        return manifest
    run = {name: part for name, part in (spec.get(_RUN_POLICY) or {}).items() if part is not None}
    for name in [*(run.keys() - _AT_THE_TOP), *(spec.keys() & {"elasticPolicy", "nprocPerNode"})]:
        if run.get(name) is not False:
            raise InvalidSpec(f"{_FIELDS.get(name, f'runPolicy.{name}')}: {_WHY_NOT}")
    kept = {name: part for name, part in spec.items() if name != _RUN_POLICY}
    told = {name: part for name, part in run.items() if name in _AT_THE_TOP}
    return {**manifest, "spec": {**kept, **told}} if spec else manifest
