"""Finds the files of an output that is passed by reference, in the step's process. It does not import kfp.

A claim whose name is known when the pipeline is compiled is mounted below `core.outputs.location.MOUNT_ROOT` under its
name. Any other claim is mounted there under the name of the pipeline value that names it, after a character with which
no claim's name begins.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec, UnsupportedByBackend
from ptjob_provider.core.outputs.contract import PvcAddress
from ptjob_provider.core.outputs.location import MOUNT_ROOT, local_path, path_in
from ptjob_provider.kfp.environment import local_config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.local.config import LocalConfig

OWN_CLAIM = "/mnt/own-claim"
"""Mount path of the model's claim in a step that copies the model; no other claim is mounted there."""

NO_MODEL = "none"
"""Value of `model_artifact` in the metadata of an artifact whose training declares no model."""

_UNKNOWN = "_"


def mount_path(claim: str) -> str:
    """Return the mount path of a claim whose name is known when the pipeline is compiled."""
    return f"{MOUNT_ROOT}/{claim}"


def mount_path_of_value(value: str) -> str:
    """Return the mount path of a claim whose name is known only when the pipeline runs; `value` is the value's name."""
    return f"{MOUNT_ROOT}/{_UNKNOWN}{re.sub(r'[^A-Za-z0-9-]+', '-', value)}"


def find_output(output: Any, *, namespace: str = "default", environ: Mapping[str, str] = os.environ) -> Path:
    """Return the output's file or directory: in the mounted claim, or in its directory on one machine.

    Args:
        output: the artifact `trained_model`, passed by reference or as a copy, or an address `pvc://claim/path`.
        namespace: the job's namespace; only used on one machine.
        environ: environment of this process.

    Raises:
        InvalidSpec: the address is not of this form, or the artifact's training declares no model.
        UnsupportedByBackend: the claim is not mounted here, or this user may not enter it.
    """
    if not isinstance(output, str) and output.metadata.get("model_artifact") == NO_MODEL:
        raise InvalidSpec.of("trained_model", output.uri, "its training declares no model: pytorchjob_op(model=…)")
    uri = output if isinstance(output, str) else reference_of(output)
    if uri is None:
        return Path(output.path)
    local = local_config(environ)
    if local is None:
        return _in_mounts(PvcAddress.parse(uri, field="uri"))
    return local_path(uri, claims=local.claims_of(namespace))


def reference_of(artifact: Any) -> str | None:
    """Return the address in an artifact's metadata; None if the artifact store has the model itself."""
    metadata = artifact.metadata
    return str(metadata["uri"]) if metadata.get("model_artifact") == "reference" else None


def find_own(uri: str, *, namespace: str, local: LocalConfig | None) -> tuple[Path, Path]:
    """Return the model's path in a step that copies its model, and the directory of its claim.

    Raises:
        InvalidSpec: a symbolic link leads out of the claim.
    """
    address = PvcAddress.parse(uri, field="uri")
    claim = Path(OWN_CLAIM) if local is None else local.claims_of(namespace) / address.claim
    return path_in(claim, uri), claim


def must_enter_own_claim() -> None:
    """Check that a step can read the claim to copy from; called before the training, not after it.

    Raises:
        UnsupportedByBackend: the claim is not mounted, or this user may not enter it.
    """
    mount = Path(OWN_CLAIM)
    if not mount.is_dir():
        why = f"a step that copies sees its model's claim at {OWN_CLAIM}, and nothing is mounted there"
        raise UnsupportedByBackend.of("model_artifact", why)
    _must_enter(mount, field="model_artifact")


def _in_mounts(address: PvcAddress) -> Path:
    mount = _mount_of(address)
    _must_enter(mount, field="uri")
    return mount / address.path


def _mount_of(address: PvcAddress) -> Path:
    named = Path(mount_path(address.claim))
    if named.is_dir():
        return named
    others = sorted(named.parent.glob(f"{_UNKNOWN}*"))
    if len(others) > 1:
        others = [each for each in others if os.access(each / address.path, os.F_OK)]
    if len(others) == 1:
        return others[0]
    why = f"the claim {address.claim} is not mounted at {named}: handover.mount_model and mount_claim do that"
    raise UnsupportedByBackend.of("uri", why)


def _must_enter(mount: Path, *, field: str) -> None:
    if os.access(mount, os.R_OK | os.X_OK):
        return
    owner = mount.stat()
    rights = f"{stat.filemode(owner.st_mode)}, user {owner.st_uid}, group {owner.st_gid}"
    advice = f"run the step as its owner: kubernetes.set_security_context(task, run_as_user={owner.st_uid})"
    raise UnsupportedByBackend.of(field, f"user {os.getuid()} may not enter the claim at {mount} ({rights}); {advice}")
