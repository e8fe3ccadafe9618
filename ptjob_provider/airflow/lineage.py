"""Describe a training's data for assets, as plain JSON, and for OpenLineage if its provider is installed.

No module of that provider is imported until it queries the operator. A dataset's namespace and name are parts of its
address: `s3://bucket` and the key, `file` and the path, `pvc://NAMESPACE/CLAIM` and the path in the claim, because a
claim's name is unique only in its Kubernetes namespace.
"""

from __future__ import annotations

import importlib.util
import json
import posixpath
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow.sdk import Asset, AssetAlias, BaseOperator
from airflow.sdk.definitions.asset import AssetRef

from ptjob_provider.core.outgoing import outgoing
from ptjob_provider.core.spec.code import CodeSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MAX_BYTES = 64 * 1024
"""Maximum bytes of an event's extra, which is read from Airflow's database with every list of the asset's events."""

EVENTFUL = Asset | AssetRef | AssetAlias
"""Types of the outlets for which Airflow creates an event when the task succeeds."""

_MODEL = ("uri", "claim", "path", "bytes", "sha256")
_TFEVENTS = ("uri", "claim", "path", "last_step")
_JOB = ("attempt", "start", "end", "queue_seconds", "run_seconds", "restarts", "gpu_seconds")
_REVISION = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


def model_extra(
    result: Mapping[str, Any], *, data_version: str | None = None, git_revision: str | None = None
) -> dict[str, Any]:
    """Return an event's extra, at most `MAX_BYTES` as JSON.

    The extra is {job, model, tfevents, metrics, code_revision, data_version, git_revision}: `job` {namespace, name,
    uid, kind, attempt, start, end, queue_seconds, run_seconds, restarts, gpu_seconds}, `model` {uri, claim, path,
    bytes, sha256} and `tfevents` {uri, claim, path, last_step} or None, `metrics` the last scalars. The last three
    exist only if they are known. If there are too many scalars, `metrics` is empty, and `left_out` names it.
    """
    metrics = (result.get("tfevents") or {}).get("scalars") or {}
    job = {**(result.get("job") or {}), **{name: result.get(name) for name in _JOB}}
    known = {"code_revision": result.get("code_revision"), "data_version": data_version, "git_revision": git_revision}
    extra = {
        "job": job,
        "model": _part(result.get("model"), _MODEL),
        "tfevents": _part(result.get("tfevents"), _TFEVENTS),
        "metrics": dict(metrics),
        **{name: value for name, value in known.items() if value},
    }
    left = dict(outgoing(extra))
    return left if len(json.dumps(left)) <= MAX_BYTES else {**left, "metrics": {}, "left_out": ["metrics"]}


def publish(context: Any, outlets: Iterable[Any], extra: Mapping[str, Any], log: Any) -> None:
    """Add the extra to the events that Airflow creates for the task's success.

    An alias gets the model as an asset with the model's address. A model that cannot be an asset is logged, and does
    not fail the training.
    """
    for outlet in outlets:
        if isinstance(outlet, Asset | AssetRef):
            context["outlet_events"][outlet].extra.update(extra)
        if not isinstance(outlet, AssetAlias):
            continue
        try:
            context["outlet_events"][outlet].add(Asset(uri=(extra["model"] or {}).get("uri", "")), extra=dict(extra))
        except ValueError as error:
            log.warning("the alias %s gets no asset: the model's address cannot be one: %s", outlet.name, error)


def revision_of(ti: Any, code: Any = None) -> str | None:
    """Return the commit of the DAG's version; None if its bundle is not a Git repository, or the code is elsewhere."""
    if code is not None and not CodeSource.is_folder(code):
        return None
    bundle = getattr(ti, "bundle_instance", None)
    version = str(getattr(bundle, "version", None) or "")
    return version if _REVISION.fullmatch(version) else None


def _part(fields: Mapping[str, Any] | None, names: Iterable[str]) -> dict[str, Any] | None:
    return {name: fields.get(name) for name in names} if fields else None


MAX_DATASETS = 100


@dataclass(frozen=True, kw_only=True)
class LineageDataset:
    """A dataset of OpenLineage.

    Attributes:
        namespace: OpenLineage's namespace of the dataset.
        name: its name in that namespace.
        version: version of the content; empty if unknown.
    """

    namespace: str
    name: str
    version: str = ""


class TellsLineage(BaseOperator):
    """Base class of an operator that reports its inputs and outputs to the OpenLineage provider.

    Inputs are the inlets that are assets, and the folders of the batches reserved for the run; outputs are the model
    and the tfevents of a job that succeeded. The data's version is `data_version`, the model's its SHA-256.
    """

    data_version: str | None
    _input_uris: Sequence[str] = ()
    """Addresses of the inputs; set while the task runs."""
    _model_extra: Mapping[str, Any] | None = None
    """Return value of `model_extra`; None until the job has succeeded."""

    def get_openlineage_facets_on_start(self) -> Any:
        """Return the inputs, for the event of the task's start."""
        return self._lineage()

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:  # noqa: ARG002 - OpenLineage's signature
        """Return the inputs, and the outputs if the job succeeded."""
        return self._lineage()

    def _lineage(self) -> Any:
        inputs = data_of(self.inlets, self._input_uris, self.data_version or "")
        return facets(inputs, outputs_of(self._model_extra) if self._model_extra else [])


def is_wanted() -> bool:
    """Return whether the provider is installed, without importing it."""
    return importlib.util.find_spec("airflow.providers.openlineage") is not None


def data_of(inlets: Iterable[Any], read: Iterable[str], version: str) -> list[LineageDataset]:
    """Return the input datasets without duplicates, at most `MAX_DATASETS`."""
    uris = [*(asset.uri for asset in inlets if isinstance(asset, Asset)), *read]
    unique = dict.fromkeys(place_of(uri) for uri in uris)
    return [LineageDataset(namespace=where, name=name, version=version) for where, name in [*unique][:MAX_DATASETS]]


def outputs_of(extra: Mapping[str, Any]) -> list[LineageDataset]:
    """Return the datasets of model and tfevents, if there are any, from the extra of the outlets' events."""
    namespace, outputs = extra["job"].get("namespace", ""), []
    if model := extra["model"]:
        where, name = place_of(model["uri"], namespace)
        outputs.append(LineageDataset(namespace=where, name=name, version=model["sha256"] or ""))
    if tfevents := extra["tfevents"]:
        where, name = place_of(tfevents["uri"], namespace)
        step = tfevents["last_step"]
        outputs.append(LineageDataset(namespace=where, name=name, version="" if step is None else f"step {step}"))
    return outputs


def place_of(uri: str, namespace: str = "") -> tuple[str, str]:
    """Return a dataset's namespace and name.

    Args:
        uri: an address, or a path of this machine.
        namespace: the Kubernetes namespace, for `pvc://` addresses.
    """
    parts = urlsplit(uri)
    if parts.scheme in {"", "file"}:
        return "file", parts.path or uri
    path = parts.path.strip("/") or "/"
    if parts.scheme == "pvc":
        return f"pvc://{posixpath.join(namespace, parts.netloc)}", path
    return f"{parts.scheme}://{parts.netloc}", path


def facets(inputs: Sequence[LineageDataset], outputs: Sequence[LineageDataset]) -> Any:
    """Return the datasets as the provider's objects."""
    from airflow.providers.openlineage.extractors import OperatorLineage  # noqa: PLC0415 - only where it is installed
    from openlineage.client.event_v2 import InputDataset, OutputDataset  # noqa: PLC0415 - as above

    return OperatorLineage(
        inputs=[InputDataset(each.namespace, each.name, facets=_facets(each)) for each in inputs],
        outputs=[OutputDataset(each.namespace, each.name, facets=_facets(each)) for each in outputs],
    )


def _facets(dataset: LineageDataset) -> dict[str, Any]:
    from openlineage.client.facet_v2 import dataset_version_dataset  # noqa: PLC0415 - as above

    version = dataset.version
    return {"version": dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=version)} if version else {}
