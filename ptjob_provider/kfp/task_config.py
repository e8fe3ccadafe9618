"""Converts the settings of the step's task - resources, volumes, tolerations - to a pod template for the job's pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptjob_provider.core import kinds
from ptjob_provider.kfp.mounted import OWN_CLAIM
from ptjob_provider.kfp.numbers import unmarked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ptjob_provider.core.identity import Manifest

_POD = {"tolerations": "tolerations", "node_selector": "nodeSelector", "affinity": "affinity"}
_CONTAINER = ("env", "resources")


def pod_template(config: Any, *, copies: bool = False) -> Manifest | None:
    """Return the settings as a pod template; None if there are none.

    Args:
        config: a `dsl.TaskConfig`; its parts are in Kubernetes' format, or None.
        copies: whether the step has mounted its model's claim for itself, to copy from it.
    """
    container = {name: unmarked(found) for name in _CONTAINER if (found := getattr(config, name, None))}
    pod = {word: unmarked(found) for name, word in _POD.items() if (found := getattr(config, name, None))}
    mounts = getattr(config, "volume_mounts", None) or ()
    if copies:
        mounts = [mount for mount in mounts if mount.get("mountPath") != OWN_CLAIM]
    if mounts:
        container["volumeMounts"] = list(mounts)
        pod["volumes"] = _mounted(getattr(config, "volumes", None) or (), mounts)
    if not container and not pod:
        return None
    return {"spec": {**pod, "containers": [{"name": kinds.DEFAULT.CONTAINER, **container}]}}


def _mounted(volumes: Sequence[Mapping[str, Any]], mounts: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the volumes of these mounts, each once: KFP's driver names a volume after its claim, once per mount."""
    names = {mount["name"] for mount in mounts}
    return list({volume["name"]: volume for volume in volumes if volume.get("name") in names}.values())
