"""Which folder the TensorBoard beside a job shows, and what runs it: read from what was asked for and rank 0's pod."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.kinds import podtemplate
from ptjob_provider.core.outputs import SCHEME, is_claim_name
from ptjob_provider.core.tensorboard import TensorBoardPlan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.outputs import ResolvedOutputs
    from ptjob_provider.core.spec import TrainingJob

_FIELD = "tensorboard.logdir"


def planned(
    job: TrainingJob, template: Mapping[str, Any], outputs: ResolvedOutputs, *, container: str, image: str
) -> TensorBoardPlan | None:
    """Return the job's TensorBoard; None if none was asked for.

    Args:
        job: what was asked for.
        template: of rank 0.
        outputs: the job's, of which tfevents are shown where no other folder is said.
        container: the name of the training container.
        image: the installation's; "" for the job's own.

    Raises:
        InvalidSpec: there is no folder to show, or it is on no claim.
    """
    asked = job.tensorboard
    if asked is None:
        return None
    if asked.logdir is not None:
        claim, path = _folder(asked.logdir, template, container)
    elif outputs.tfevents is not None:
        claim, path = outputs.tfevents.claim, outputs.tfevents.path
    else:
        raise InvalidSpec.of("tensorboard", "true", "set together with `tfevents` or `logdir`: a folder to show")
    found = TensorBoardPlan(claim=claim, path=path, image=asked.image or image)
    return found.served_as(asked.service_type) if asked.service_type else found


def _folder(text: str, template: Mapping[str, Any], container: str) -> tuple[str, str]:
    if text.startswith(SCHEME):
        claim, _, path = text.removeprefix(SCHEME).partition("/")
        if not is_claim_name(claim) or ".." in path.split("/"):
            raise InvalidSpec.of(_FIELD, text, "pvc://claim/path, without '..'")
        return claim, _clean(path)
    working_dir = podtemplate.find_container(template, container).get("workingDir") or ""
    place = _clean(posixpath.join(working_dir, text))
    if not posixpath.join(working_dir, text).startswith("/"):
        raise InvalidSpec.of(_FIELD, text, "pvc://claim/path, or an absolute path; a relative one needs working_dir")
    mounts = podtemplate.claim_mounts(template, container=container)
    holding = [mount for mount in mounts if _is_below(place, _clean(mount.mount_path))]
    nearest = max(holding, key=lambda mount: len(_clean(mount.mount_path)), default=None)
    if nearest is None or not nearest.claim:
        seen = ", ".join(str(mount) for mount in mounts if mount.claim) or "(it mounts none)"
        raise InvalidSpec.of(_FIELD, text, f"on a claim, where a pod beside the job can see it: below {seen}")
    inside = place.removeprefix(_clean(nearest.mount_path))
    return nearest.claim, _clean(f"{nearest.sub_path}/{inside}")


def _clean(path: str) -> str:
    """Return the path without its root and without parts that lead nowhere; the root is ""."""
    return posixpath.normpath(f"/{path}").strip("/")


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")
