"""What a pipeline's author set on the step - resources, volumes, tolerations - as a pod template for the job's pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptjob_provider.core.handover import MOUNT_ROOT
from ptjob_provider.core.kinds import pytorchjob
from ptjob_provider.kfp.numbers import unmarked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ptjob_provider.core.identity import Manifest

_POD = {"tolerations": "tolerations", "node_selector": "nodeSelector", "affinity": "affinity"}
_CONTAINER = ("env", "resources")


def pod_template(config: Any) -> Manifest | None:
    """Return the settings as a pod template; None if nothing was set.

    Args:
        config: a `dsl.TaskConfig`; its parts are in Kubernetes' words, or None.
    """
    container = {name: unmarked(found) for name in _CONTAINER if (found := getattr(config, name, None))}
    pod = {word: unmarked(found) for name, word in _POD.items() if (found := getattr(config, name, None))}
    mounts = [mount for mount in getattr(config, "volume_mounts", None) or () if not _is_the_steps(mount)]
    if mounts:
        container["volumeMounts"] = mounts
        pod["volumes"] = _mounted(getattr(config, "volumes", None) or (), mounts)
    if not container and not pod:
        return None
    return {"spec": {**pod, "containers": [{"name": pytorchjob.CONTAINER, **container}]}}


def _is_the_steps(mount: Mapping[str, Any]) -> bool:
    """Whether a claim is mounted for the step itself, which hands an output on from there."""
    return str(mount.get("mountPath", "")).startswith(f"{MOUNT_ROOT}/")


def _mounted(volumes: Sequence[Mapping[str, Any]], mounts: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    names = {mount["name"] for mount in mounts}
    return [volume for volume in volumes if volume.get("name") in names]
