"""Converts KubernetesPodOperator's `secrets` and `configmaps` to fields of a training job, without reading a secret."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.spec import environment, objects, volumes
from ptjob_provider.core.wire import to_wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ptjob_provider.core.spec import TrainingJob


def with_secrets(job: TrainingJob, secrets: Sequence[Any], configmaps: Sequence[str]) -> TrainingJob:
    """Return the job with these secrets and config maps added.

    Args:
        job: the requested job.
        secrets: `airflow.providers.cncf.kubernetes.secret.Secret` objects.
        configmaps: names.

    Raises:
        InvalidSpec: one of them is not such an object, or not a name.
    """
    for index, name in enumerate(configmaps):
        job = _with_source(job, f"configmaps[{index}]", {"config_map": name})
    for index, secret in enumerate(secrets):
        job = _with_secret(job, f"secrets[{index}]", secret)
    return job


def _with_secret(job: TrainingJob, field: str, secret: Any) -> TrainingJob:
    if not all(hasattr(secret, part) for part in ("deploy_type", "deploy_target", "secret", "key", "items")):
        raise InvalidSpec.of(field, secret, "a Secret of airflow.providers.cncf.kubernetes.secret")
    if secret.deploy_type == "volume":
        return _with_volume(job, field, secret)
    if secret.key is None:
        return _with_source(job, field, {"secret": secret.secret})
    variable = {secret.deploy_target: {"secret": secret.secret, "key": secret.key}}
    return replace(job, env=environment.merged(job.env, environment.environment(field, variable)))


def _with_source(job: TrainingJob, field: str, source: dict[str, Any]) -> TrainingJob:
    return replace(job, env_from=(*(job.env_from or ()), objects.env_source(field, source)))


def _with_volume(job: TrainingJob, field: str, secret: Any) -> TrainingJob:
    """Mount the secret under a name that is equal in every try; a different one would count as a changed job."""
    digest = hashlib.sha256(f"{secret.secret}:{secret.deploy_target}".encode()).hexdigest()[:8]
    items = {"items": to_wire(list(secret.items))} if secret.items else {}
    volume = {"name": f"secret-{digest}", "secret": {"secretName": secret.secret, **items}}
    mount = {"name": volume["name"], "mountPath": secret.deploy_target, "readOnly": True}
    return replace(
        job,
        volumes=(*(job.volumes or ()), volumes.volume(field, volume)),
        volume_mounts=(*(job.volume_mounts or ()), volumes.volume_mount(field, mount)),
    )
