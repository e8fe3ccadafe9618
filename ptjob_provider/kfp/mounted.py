"""Where a step's process sees an output that is handed on by reference. It needs no kfp."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ptjob_provider.core.errors import UnsupportedByBackend
from ptjob_provider.core.handover import MountedOutput, local_path
from ptjob_provider.kfp.place import local_config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.local import LocalConfig

VOLUME = "model"
"""The name below `core.handover.MOUNT_ROOT` at which a step sees the claim of a model."""


def find_output(uri: str, *, namespace: str = "default", environ: Mapping[str, str] = os.environ) -> Path:
    """Return the file or directory that an address means: in the mounted claim, or in its directory on one machine.

    Args:
        uri: `pvc://claim/path`, such as the `uri` of the artifact `trained_model`.
        namespace: of the job, on one machine.
        environ: of this process.

    Raises:
        InvalidSpec: it is no such address.
        UnsupportedByBackend: the claim is not mounted here.
    """
    return place_of(uri, namespace=namespace, local=local_config(environ))


def place_of(uri: str, *, namespace: str, local: LocalConfig | None) -> Path:
    """Return the same, where it is known how jobs run on this machine, or that they do not."""
    if local is not None:
        return local_path(uri, claims=local.claims_of(namespace))
    mounted = MountedOutput.of(uri, volume=VOLUME)
    if not Path(mounted.mount_path).is_dir():
        why = f"the claim {mounted.claim} is not mounted here; mount it at {mounted.mount_path}: handover.mount_model"
        raise UnsupportedByBackend.of("model", why)
    return Path(mounted.container_path)
