"""Data of a training for the assets that it updates: plain JSON, for consumers without our classes."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MAX_BYTES = 64 * 1024
"""Maximum bytes of an event's extra: a row in Airflow's database, read with every listing of the asset's events.
"""

_MODEL = ("uri", "claim", "path", "bytes", "sha256")
_TFEVENTS = ("uri", "claim", "path", "last_step", "scalars")
_JOB = ("attempt", "start", "end", "queue_seconds", "run_seconds", "restarts", "gpu_seconds")
_REVISION = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


def model_extra(
    result: Mapping[str, Any], *, data_version: str | None = None, git_revision: str | None = None
) -> dict[str, Any]:
    """Return an event's extra, at most `MAX_BYTES` as JSON.

    It is {job, model, tfevents, metrics, data_version, git_revision}: `job` {namespace, name, uid, kind, attempt,
    start, end, queue_seconds, run_seconds, restarts, gpu_seconds}, `model` {uri, claim, path, bytes, sha256} and
    `tfevents` {uri, claim, path, last_step, scalars} or None, `metrics` the last scalars. The last two exist only if
    they are known. If there are too many scalars, those of tfevents are left out, then `metrics` as well, and
    `left_out` names them.
    """
    metrics = (result.get("tfevents") or {}).get("scalars") or {}
    job = {**(result.get("job") or {}), **{name: result.get(name) for name in _JOB}}
    known = {"data_version": data_version, "git_revision": git_revision}
    extra = {
        "job": job,
        "model": _part(result.get("model"), _MODEL),
        "tfevents": _part(result.get("tfevents"), _TFEVENTS),
        "metrics": dict(metrics),
        **{name: value for name, value in known.items() if value},
    }
    return _bounded(extra)


def publish(context: Any, outlets: Iterable[Any], extra: Mapping[str, Any], log: Any) -> None:
    """Add the extra to the events that Airflow creates for the task's success.

    An alias gets the model as an asset with the model's address. A model that cannot be an asset is logged, and does
    not fail the training.
    """
    for outlet in outlets:
        if not isinstance(outlet, AssetAlias):
            context["outlet_events"][outlet].extra.update(extra)
            continue
        try:
            context["outlet_events"][outlet].add(Asset(uri=(extra["model"] or {}).get("uri", "")), extra=dict(extra))
        except ValueError as error:
            log.warning("the alias %s gets no asset: the model's address cannot be one: %s", outlet.name, error)


def revision_of(ti: Any) -> str | None:
    """Return the commit of the DAG's version; None if its bundle is not a Git repository."""
    bundle = getattr(ti, "bundle_instance", None)
    version = str(getattr(bundle, "version", None) or "")
    return version if _REVISION.fullmatch(version) else None


def _part(found: Mapping[str, Any] | None, names: Iterable[str]) -> dict[str, Any] | None:
    return {name: found.get(name) for name in names} if found else None


def _bounded(extra: dict[str, Any]) -> dict[str, Any]:
    if _size(extra) > MAX_BYTES and extra["tfevents"]:
        extra = {**extra, "tfevents": {**extra["tfevents"], "scalars": {}}, "left_out": ["tfevents.scalars"]}
    if _size(extra) > MAX_BYTES:
        extra = {**extra, "metrics": {}, "left_out": ["tfevents.scalars", "metrics"]}
    return extra


def _size(extra: Mapping[str, Any]) -> int:
    return len(json.dumps(extra))
