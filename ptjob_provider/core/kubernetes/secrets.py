"""Read the values of the Secrets in a job's environment, so that they can be masked in logs."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from ptjob_provider.core import kinds
from ptjob_provider.core.errors import JobNotFound
from ptjob_provider.core.kubernetes import paths
from ptjob_provider.core.kubernetes.client import lease

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kubernetes.config import ClusterConfig


async def secret_values(config: ClusterConfig, job: Manifest) -> list[str]:
    """Return the text values of the Secrets; missing Secrets and binary values are left out.

    Raises:
        ClusterError: they may not be read.
    """
    values: list[str] = []
    async with lease(config) as client:
        for name, keys in kinds.secrets_in_env(job).items():
            try:
                secret = await client.get(paths.secrets(job["metadata"]["namespace"], name))
            except JobNotFound:
                continue
            data = secret.get("data") or {}
            values += [_text(value) for key, value in data.items() if keys is None or key in keys]
    return values


def _text(value: str) -> str:
    return base64.b64decode(value).decode("utf-8", "ignore")
