"""Helpers that render recorded and described jobs, and return a part of the manifest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptjob_provider.core.kinds import PYTORCHJOB
from ptjob_provider.core.spec import TrainingJob
from recorded import OWNER, recorded

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Owner
    from ptjob_provider.core.kinds import Rendered
    from ptjob_provider.core.spec import Installation

IMAGE = "registry.example/digits:1"
SHM = "/dev/shm"  # noqa: S108 - a mount point


def render(
    *,
    attempt: int = 1,
    owner: Owner = OWNER,
    exact_name: bool = False,
    installation: Installation | None = None,
    **values: Any,
) -> Rendered:
    if "manifest" not in values:
        values = {"name": "digits", "image": IMAGE, **values}
    job = TrainingJob.parse(**values)
    return PYTORCHJOB.render(job, owner=owner, attempt=attempt, exact_name=exact_name, installation=installation)


def over(story: str, **values: Any) -> dict[str, Any]:
    """Render a recorded manifest with fields of the operator on top."""
    return render(manifest=recorded(story), name="digits", **values).manifest


def pod(manifest: dict[str, Any], role: str = "Master") -> dict[str, Any]:
    spec: dict[str, Any] = manifest["spec"]["pytorchReplicaSpecs"][role]["template"]["spec"]
    return spec


def container(manifest: dict[str, Any], role: str = "Master") -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in pod(manifest, role)["containers"] if each["name"] == "pytorch")
    return found


def variables(manifest: dict[str, Any], role: str = "Master") -> dict[str, Any]:
    return {each["name"]: each.get("value", "a reference") for each in container(manifest, role)["env"]}


def mounted(manifest: dict[str, Any], role: str = "Master") -> dict[str, dict[str, Any]]:
    """Return the volume at each mount path of the training container."""
    volumes = {volume["name"]: volume for volume in pod(manifest, role).get("volumes", [])}
    return {mount["mountPath"]: volumes[mount["name"]] for mount in container(manifest, role).get("volumeMounts", [])}
